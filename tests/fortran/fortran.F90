! SPDX-License-Identifier: BSD-3-Clause
! fortran - every subroutine of epx_f08, its values compared; check_fortran.sh builds and runs
! it twice, with buffers of any type and as c_ptr.
#ifdef EPX_F08_C_PTR
#define B(x) c_loc(x)
#else
#define B(x) x
#endif
module checks
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  use mpi_f08
  use epx_f08
  implicit none

  integer(c_int), parameter :: TOKENS = 3, TOP_K = 2, HIDDEN = 4
  integer(c_int) :: rank, ranks
  integer :: failures = 0
  type(EPX_Comm) :: comm
  type(EPX_Route) :: route
  type(EPX_Route_view) :: view
  integer(c_int64_t), target :: ids(TOP_K, TOKENS)
  real(c_float), target :: x(HIDDEN, TOKENS), weights(TOP_K, TOKENS)
  real(c_float), pointer :: rows(:, :), row_weights(:)
  integer(c_int32_t), pointer :: row_tokens(:), row_ranks(:), slots(:, :)
  integer(c_int64_t), pointer :: num_rows

contains

  subroutine expect(condition, what)
    logical, intent(in) :: condition
    character(len=*), intent(in) :: what

    if (condition) return
    failures = failures + 1
    write (error_unit, '(a,i0,2a)') 'rank ', rank, ': not so: ', what
  end subroutine

  subroutine expect_code(code, wanted, what)
    integer(c_int), intent(in) :: code, wanted
    character(len=*), intent(in) :: what

    if (code /= wanted) write (error_unit, '(a,i0,a,i0)') what//' gave ', code, ', not ', wanted
    call expect(code == wanted, what)
  end subroutine

  elemental real(c_float) function token_value(home, token, element)
    integer, intent(in) :: home, token, element

    token_value = real(1000*home + 10*token + element, c_float)
  end function

  subroutine expect_rows(status, wanted, what)
    type(MPI_Status), intent(in) :: status
    integer, intent(in) :: wanted
    character(len=*), intent(in) :: what
    integer :: received

    call MPI_Get_elements(status, MPI_BYTE, received)
    call expect(received == wanted, what//': rows of the status')
    call expect(status%MPI_ERROR == EPX_SUCCESS, what//': error of the status')
    call expect(status%MPI_SOURCE == MPI_ANY_SOURCE, what//': source of the status')
  end subroutine

  subroutine library_tells_its_version()
    character(len=EPX_MAX_LIBRARY_VERSION_STRING) :: version
    character(len=EPX_MAX_ERROR_STRING) :: text
    character(len=7) :: short
    integer(c_int) :: major, minor, patch, length, error

    call EPX_Get_version(major, minor, patch, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Get_version')
    call expect(major == EPX_VERSION_MAJOR .and. minor == EPX_VERSION_MINOR .and. &
                patch == EPX_VERSION_PATCH, 'version of the library is that of the module')
    call EPX_Get_library_version(version, length)
    call expect(version(:4) == 'epx ' .and. len_trim(version) == length, 'library version')
    call EPX_Error_string(EPX_ERR_REQUEST, text, length)
    call expect(text(:length) == 'invalid request', 'error string')
    call EPX_Error_string(EPX_ERR_REQUEST, short, length)
    call expect(short == 'invalid' .and. length == 7, 'error string that is cut')
    call EPX_Error_string(-5_c_int, text, length, error)
    call expect_code(error, EPX_ERR_ARG, 'EPX_Error_string')
  end subroutine

  subroutine open_comm()
    type(MPI_Info) :: info
    character(len=MPI_MAX_INFO_VAL) :: value
    logical :: found
    integer(c_int) :: length, error

    call MPI_Info_create(info)
    call MPI_Info_set(info, 'epx_timeout_ms', '12345')
    call expect(comm == EPX_COMM_NULL, 'a communicator is null at first')
    call EPX_Comm_create(MPI_COMM_WORLD, info, comm, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Comm_create')
    call expect(comm /= EPX_COMM_NULL, 'a communicator is not null')
    call MPI_Info_free(info)
    call EPX_Comm_set_errhandler(comm, MPI_ERRORS_RETURN, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Comm_set_errhandler')
    call EPX_Comm_rank(comm, rank)
    call EPX_Comm_size(comm, ranks)
    call EPX_Comm_get_info(comm, info, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Comm_get_info')
    call MPI_Info_get(info, 'epx_timeout_ms', MPI_MAX_INFO_VAL, value, found)
    call expect(found .and. value == '12345', 'the hint arrived')
    call EPX_Comm_get_hint(comm, 'epx_timeout_ms', value, length, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Comm_get_hint')
    call expect(length == 5 .and. value == '12345', 'the hint without MPI')
    call MPI_Info_free(info)
  end subroutine

  ! The allgather of EPX_Bootstrap.
  integer(c_int) function gather(own, all_ranks, bytes, arg) bind(C)
    type(c_ptr), value :: own, all_ranks, arg
    integer(c_size_t), value :: bytes
    character(kind=c_char), pointer :: mine(:), gathered(:)
    integer :: num

    num = int(bytes)
    call c_f_pointer(own, mine, [num])
    call c_f_pointer(all_ranks, gathered, [num*ranks])
    call MPI_Allgather(mine, num, MPI_BYTE, gathered, num, MPI_BYTE, MPI_COMM_WORLD)
    gather = merge(0_c_int, 1_c_int, .not. c_associated(arg))
  end function

  subroutine a_communicator_needs_no_mpi()
    type(EPX_Bootstrap) :: bootstrap
    type(EPX_Comm) :: other
    character(len=24) :: hints(2), none(0)
    integer(c_int) :: error, number

    bootstrap%rank = rank
    bootstrap%num_ranks = ranks
    bootstrap%allgather = c_funloc(gather)
    hints = [character(len=24) :: 'epx_timeout_ms=54321', 'epx_window_bytes=65536']
    call EPX_Comm_create_from(bootstrap, hints, other, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Comm_create_from')
    call EPX_Comm_rank(other, number)
    call expect(number == rank, 'rank of a communicator without MPI')
    call EPX_Comm_set_errhandler(other, MPI_ERRORS_RETURN, error)
    call expect_code(error, EPX_ERR_NOT_INITIALIZED, 'EPX_Comm_set_errhandler without MPI')
    call EPX_Comm_free(other, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Comm_free')
    bootstrap%num_ranks = 0
    call EPX_Comm_create_from(bootstrap, none, other, error)
    call expect_code(error, EPX_ERR_ARG, 'EPX_Comm_create_from of no ranks')
  end subroutine

  subroutine open_route()
    type(EPX_Route_attr) :: attr
    type(c_ptr) :: base
    integer(c_int) :: error
    integer :: i, k, t

    attr%num_experts = 2*ranks
    attr%top_k = TOP_K
    attr%max_tokens = TOKENS
    attr%max_row_bytes = HIDDEN*c_sizeof(x(1, 1)) + TOP_K*c_sizeof(ids(1, 1))
    call EPX_Route_create(attr, comm, route, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Route_create')
    call EPX_Route_get_view(route, view, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Route_get_view')
    call expect(view%capacity == ranks*TOKENS*TOP_K, 'capacity of the view')
    call expect(view%num_local_experts == 2 .and. view%first_local_expert == 2*rank, &
                'local experts of the view')
    call EPX_Route_set_counts(route, c_null_ptr, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Route_set_counts')
    call EPX_Route_set_capacity(route, -1_c_int64_t, error)
    call expect_code(error, EPX_ERR_ARG, 'EPX_Route_set_capacity')
    call EPX_Route_set_capacity(route, view%capacity, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Route_set_capacity')
    call EPX_Alloc_mem(view%capacity*HIDDEN*c_sizeof(x(1, 1)), comm, base, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Alloc_mem')
    call c_f_pointer(base, rows, [int(HIDDEN, c_int64_t), view%capacity])
    allocate (row_weights(view%capacity))
    call c_f_pointer(view%row_tokens, row_tokens, [view%capacity])
    call c_f_pointer(view%row_ranks, row_ranks, [view%capacity])
    call c_f_pointer(view%slots, slots, [TOP_K, TOKENS])
    call c_f_pointer(view%num_rows, num_rows)
    ids = reshape([((mod(rank + t + k, 2*ranks), k=1, TOP_K), t=1, TOKENS)], [TOP_K, TOKENS])
    x = reshape([((token_value(rank, t, i), i=1, HIDDEN), t=1, TOKENS)], [HIDDEN, TOKENS])
    weights = spread([0.25_c_float, 0.5_c_float], 2, TOKENS)
  end subroutine

  subroutine rows_arrive_with_their_weights()
    type(EPX_Request) :: requests(2)
    type(MPI_Status) :: statuses(2)
    integer(c_int64_t) :: all_rows
    integer(c_int) :: error
    integer :: i, r

    rows = -1
    call EPX_Route_tokens(B(ids), TOKENS, route, EPX_STREAM_NULL, requests(1), error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Route_tokens')
    call EPX_Dispatch(B(x), B(weights), B(rows), B(row_weights), HIDDEN, EPX_FLOAT32, &
                      route, EPX_STREAM_NULL, requests(2), error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Dispatch')
    call EPX_Waitall(2_c_int, requests, statuses, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Waitall')
    call expect(all(requests == EPX_REQUEST_NULL), 'requests are null when complete')
    call expect_rows(statuses(1), int(num_rows), 'EPX_Route_tokens')
    call expect_rows(statuses(2), int(num_rows), 'EPX_Dispatch')
    do r = 1, int(num_rows)
      do i = 1, HIDDEN
        call expect(rows(i, r) == token_value(row_ranks(r), row_tokens(r) + 1, i), 'a row''s value')
      end do
      call expect(row_weights(r) == 0.25 .or. row_weights(r) == 0.5, 'a row''s weight')
    end do
    call MPI_Allreduce(num_rows, all_rows, 1, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD)
    call expect(all_rows == ranks*TOKENS*TOP_K, 'every pair arrived')
  end subroutine

  subroutine one_call_does_what_two_did()
    real(c_float), allocatable :: rows_before(:, :), weights_before(:)
    type(EPX_Request) :: request
    type(MPI_Status) :: status
    integer(c_int) :: error

    allocate (rows_before(HIDDEN, num_rows), weights_before(num_rows))
    rows_before = rows(:, :num_rows)
    weights_before = row_weights(:num_rows)
    rows = -1
    row_weights = -1
    call EPX_Route_dispatch(B(ids), TOKENS, B(x), B(weights), B(rows), B(row_weights), HIDDEN, &
                            EPX_FLOAT32, route, EPX_STREAM_NULL, request, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Route_dispatch')
    call EPX_Wait(request, status, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Wait')
    call expect_rows(status, int(num_rows), 'EPX_Route_dispatch')
    call expect(all(rows(:, :num_rows) == rows_before), 'rows of one call')
    call expect(all(row_weights(:num_rows) == weights_before), 'weights of one call')
  end subroutine

  ! The rows of expert e begin at row e*ROOM + 1; those that nothing came in stay as they were.
  subroutine slabs_have_their_place()
    integer(c_int64_t), parameter :: ROOM = 7
    type(EPX_Route_attr) :: attr
    type(EPX_Route) :: slabs
    type(EPX_Route_view) :: shown
    real(c_float), allocatable, target :: got(:, :)
    integer(c_int32_t), pointer :: counts(:), tokens_of(:), ranks_of(:)
    type(EPX_Request) :: request
    type(MPI_Status) :: status
    integer(c_int) :: error, all_rows
    integer :: e, i, r

    attr%num_experts = 2*ranks
    attr%top_k = TOP_K
    attr%max_tokens = TOKENS
    attr%layout = EPX_EXPERT_SLAB
    attr%rows_per_expert = ROOM
    call EPX_Route_create(attr, comm, slabs, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Route_create of slabs')
    call EPX_Route_get_view(slabs, shown)
    call expect(shown%capacity == 2*ROOM, 'capacity of slabs')
    call c_f_pointer(shown%expert_counts, counts, [2])
    call c_f_pointer(shown%row_tokens, tokens_of, [shown%capacity])
    call c_f_pointer(shown%row_ranks, ranks_of, [shown%capacity])
    allocate (got(HIDDEN, shown%capacity))
    got = -1
    call EPX_Route_dispatch(expert_ids=B(ids), num_tokens=TOKENS, sendbuf=B(x), recvbuf=B(got), &
                            count=HIDDEN, datatype=EPX_FLOAT32, route=slabs, &
                            stream=EPX_STREAM_NULL, request=request, ierror=error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Route_dispatch to slabs')
    call EPX_Wait(request, status, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Wait for slabs')
    call expect_rows(status, sum(counts), 'EPX_Route_dispatch to slabs')
    call MPI_Allreduce(sum(counts), all_rows, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call expect(all_rows == ranks*TOKENS*TOP_K, 'every pair arrived in a slab')
    do e = 0, 1
      do r = int(e*ROOM) + 1, int((e + 1)*ROOM)
        do i = 1, HIDDEN
          if (r <= e*ROOM + counts(e + 1)) then
            call expect(got(i, r) == token_value(ranks_of(r), tokens_of(r) + 1, i), 'a slab''s row')
          else
            call expect(got(i, r) == -1 .and. tokens_of(r) == -1, 'an unused row')
          end if
        end do
      end do
    end do
    call EPX_Route_free(slabs, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Route_free of slabs')
  end subroutine

  ! The tokens as one field, and the expert ids of their two choices as another.
  subroutine fields_travel_together()
    real(c_float), allocatable :: rows_before(:, :)
    integer(c_int64_t), allocatable, target :: row_ids(:, :)
    type(c_ptr) :: sendbufs(2), recvbufs(2)
    type(EPX_Request) :: request
    type(MPI_Status) :: status
    integer(c_int) :: counts(2), types(2), error
    integer :: r, way

    counts = [HIDDEN, TOP_K*2_c_int]
    types = [EPX_FLOAT32, EPX_FLOAT32]
    allocate (rows_before(HIDDEN, num_rows), row_ids(TOP_K, view%capacity))
    rows_before = rows(:, :num_rows)
    do way = 1, 2
      rows = -1
      row_ids = -1
      sendbufs = [c_loc(x), c_loc(ids)]
      recvbufs = [c_loc(rows), c_loc(row_ids)]
      if (way == 1) then
        call EPX_Dispatch_fields(2_c_int, sendbufs, recvbufs, counts, types, B(weights), &
                                 B(row_weights), route, EPX_STREAM_NULL, request, error)
      else
        call EPX_Route_dispatch_fields(B(ids), TOKENS, 2_c_int, sendbufs, recvbufs, counts, types, &
                                       B(weights), B(row_weights), route, EPX_STREAM_NULL, &
                                       request, error)
      end if
      call expect_code(error, EPX_SUCCESS, 'EPX_Dispatch_fields')
      sendbufs = c_null_ptr
      recvbufs = c_null_ptr
      call EPX_Wait(request, status, error)
      call expect_code(error, EPX_SUCCESS, 'EPX_Wait')
      call expect_rows(status, int(num_rows), 'EPX_Dispatch_fields')
      call expect(all(rows(:, :num_rows) == rows_before), 'rows beside another field')
      do r = 1, int(num_rows)
        call expect(row_ids(1, r) == mod(row_ranks(r) + row_tokens(r) + 2, 2*ranks), &
                    'the first id of a row''s token')
      end do
    end do
    call EPX_Dispatch_fields(EPX_MAX_FIELDS + 1_c_int, sendbufs, recvbufs, counts, types, &
                             route=route, stream=EPX_STREAM_NULL, request=request, ierror=error)
    call expect_code(error, EPX_ERR_ARG, 'EPX_Dispatch_fields')
  end subroutine

  ! Every pair's row is the token itself, weighted at home as at the experts, and added to a bias.
  subroutine sums_start_from_biases()
    real(c_float), allocatable, target :: bias(:, :)
    real(c_float), allocatable, target :: sums(:, :)
    real(c_float), allocatable :: wanted(:, :)
    type(c_ptr) :: biases(1)
    type(EPX_Request) :: request
    type(MPI_Status) :: status
    integer(c_int) :: error
    integer :: way

    allocate (bias(HIDDEN, TOKENS), sums(HIDDEN, TOKENS), wanted(HIDDEN, TOKENS))
    bias = 5
    wanted = bias + 0.75_c_float*x
    do way = 1, 2
      sums = -1
      biases = c_loc(bias)
      if (way == 1) then
        call EPX_Combine_from(B(rows), B(row_weights), 1_c_int, biases, recvbuf=B(sums), &
                              count=HIDDEN, datatype=EPX_FLOAT32, route=route, &
                              stream=EPX_STREAM_NULL, request=request, ierror=error)
      else
        call EPX_Combine_from(B(rows), num_biases=1_c_int, biases=biases, &
                              token_weights=B(weights), recvbuf=B(sums), count=HIDDEN, &
                              datatype=EPX_FLOAT32, route=route, stream=EPX_STREAM_NULL, &
                              request=request, ierror=error)
      end if
      call expect_code(error, EPX_SUCCESS, 'EPX_Combine_from')
      biases = c_null_ptr
      call EPX_Wait(request, status, error)
      call expect_code(error, EPX_SUCCESS, 'EPX_Wait')
      call expect(all(sums == wanted), 'sums that start from biases')
    end do
    call EPX_Combine_from(B(rows), B(row_weights), EPX_MAX_BIASES + 1_c_int, biases, &
                          recvbuf=B(sums), count=HIDDEN, datatype=EPX_FLOAT32, route=route, &
                          stream=EPX_STREAM_NULL, request=request, ierror=error)
    call expect_code(error, EPX_ERR_ARG, 'EPX_Combine_from')
  end subroutine

  ! Every pair's row is the token itself: weighted, the token comes back 0.75 times.
  subroutine combine_sums_what_dispatch_sent()
    real(c_float), target :: sums(HIDDEN, TOKENS)
    type(EPX_Request) :: request
    type(MPI_Status) :: status
    integer(c_int) :: error

    sums = -1
    call EPX_Combine(B(rows), B(row_weights), B(sums), HIDDEN, EPX_FLOAT32, route, &
                     EPX_STREAM_NULL, request, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Combine')
    call EPX_Wait(request, status, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Wait')
    call expect_rows(status, TOKENS, 'EPX_Combine')
    call expect(all(sums == 0.75*x), 'weighted sums')
    call EPX_Combine(sendbuf=B(rows), recvbuf=B(sums), count=HIDDEN, &
                     datatype=EPX_FLOAT32, route=route, stream=EPX_STREAM_NULL, request=request)
    call EPX_Wait(request, MPI_STATUS_IGNORE)
    call expect(all(sums == 2*x), 'sums without weights')
  end subroutine

  subroutine gradients_go_the_other_way()
    real(c_float), allocatable, target :: grad_rows(:, :), grad_row_weights(:)
    real(c_float), target :: grad(HIDDEN, TOKENS), grad_weights(TOP_K, TOKENS)
    type(EPX_Request) :: request
    type(MPI_Status) :: status
    integer(c_int) :: error
    logical :: complete
    integer :: k, t

    allocate (grad_rows(HIDDEN, view%capacity), grad_row_weights(view%capacity))
    call EPX_Combine_backward(B(x), B(rows), B(row_weights), B(grad_rows), B(grad_row_weights), &
                              HIDDEN, EPX_FLOAT32, route, EPX_STREAM_NULL, request, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Combine_backward')
    complete = .false.
    do while (.not. complete)
      call EPX_Test(request, complete, status, error)
      call expect_code(error, EPX_SUCCESS, 'EPX_Test')
    end do
    call expect(request == EPX_REQUEST_NULL, 'a tested request is null')
    call EPX_Dispatch_backward(B(grad_rows), B(grad_row_weights), B(grad), B(grad_weights), &
                               HIDDEN, EPX_FLOAT32, route, EPX_STREAM_NULL, request, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Dispatch_backward')
    call EPX_Wait_enqueue(request, EPX_STREAM_NULL, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Wait_enqueue')
    call expect(all(grad == 0.75*x), 'gradients of tokens')
    do t = 1, TOKENS
      do k = 1, TOP_K
        call expect(abs(grad_weights(k, t)/sum(x(:, t)**2) - 1) < 1e-5, 'gradients of weights')
      end do
    end do
  end subroutine

  ! Rank r sends r + s + 1 rows to rank s.
  subroutine alltoallv_counts_what_it_receives()
    integer(c_int64_t), target :: sendcounts(0:ranks - 1), sdispls(0:ranks - 1)
    integer(c_int64_t), target :: recvcounts(0:ranks - 1), rdispls(0:ranks - 1)
    integer(c_int32_t), allocatable, target :: sent(:, :), received(:, :)
    type(EPX_Request) :: request
    type(MPI_Status) :: status
    integer(c_int) :: error
    integer :: i, r, row

    sendcounts = [(rank + r + 1, r=0, ranks - 1)]
    sdispls = [(sum(sendcounts(:r - 1)), r=0, ranks - 1)]
    allocate (sent(2, sum(sendcounts)), received(2, sum(sendcounts)))
    do r = 0, ranks - 1
      do i = 0, int(sendcounts(r)) - 1
        sent(:, sdispls(r) + i + 1) = [100*rank + r, i]
      end do
    end do
    call EPX_Alltoallv(B(sent), B(sendcounts), B(sdispls), B(received), B(recvcounts), B(rdispls), &
                       size(received, 2, c_int64_t), 8_c_int, EPX_BYTE, comm, EPX_STREAM_NULL, &
                       request, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Alltoallv')
    call EPX_Wait(request, status, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Wait')
    call expect_rows(status, int(sum(sendcounts)), 'EPX_Alltoallv')
    call expect(all(recvcounts == sendcounts), 'counts received')
    row = 0
    do r = 0, ranks - 1
      call expect(rdispls(r) == row, 'displacements received')
      do i = 0, rank + r
        row = row + 1
        call expect(all(received(:, row) == [100*r + rank, i]), 'a row of alltoallv')
      end do
    end do
  end subroutine

  ! Rows go three times with fixed counts, which the array has lost by then; the last time by
  ! EPX_Startall.
  subroutine a_persistent_exchange_is_started_again()
    integer(c_int64_t), target :: sendcounts(0:ranks - 1), sdispls(0:ranks - 1)
    integer(c_int64_t), target :: recvcounts(0:ranks - 1), rdispls(0:ranks - 1)
    integer(c_int64_t), target :: sent(0:ranks - 1), received(0:ranks - 1)
    type(EPX_Request) :: requests(1)
    type(MPI_Status) :: status
    integer(c_int) :: error
    integer :: r, time

    sendcounts = 1
    sdispls = [(r, r=0, ranks - 1)]
    call EPX_Alltoallv_init(B(sent), B(sendcounts), B(sdispls), B(received), B(recvcounts), &
                            B(rdispls), int(ranks, c_int64_t), 8_c_int, EPX_BYTE, comm, &
                            EPX_STREAM_NULL, EPX_FIXED_COUNTS, requests(1), error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Alltoallv_init')
    sendcounts = -1
    do time = 1, 3
      sent = [(1000*time + 100*rank + r, r=0, ranks - 1)]
      if (time < 3) then
        call EPX_Start(requests(1), error)
      else
        call EPX_Startall(1_c_int, requests, error)
      end if
      call expect_code(error, EPX_SUCCESS, 'EPX_Start')
      call EPX_Request_free(requests(1), error)
      call expect_code(error, EPX_ERR_REQUEST, 'EPX_Request_free')
      call EPX_Wait(requests(1), status, error)
      call expect_code(error, EPX_SUCCESS, 'EPX_Wait')
      call expect_rows(status, ranks, 'EPX_Start')
      call expect(all(received == [(1000*time + 100*r + rank, r=0, ranks - 1)]), 'rows received')
      call expect(requests(1) /= EPX_REQUEST_NULL, 'a persistent request stays')
    end do
    call EPX_Request_free(requests(1), error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Request_free')
    call expect(requests(1) == EPX_REQUEST_NULL, 'a request is freed')
  end subroutine

  ! Along a ring in both directions, by a graph, once and by a persistent request.
  subroutine neighbours_exchange_numbers()
    integer(c_int64_t), target, asynchronous :: sendcounts(2), sdispls(2), recvcounts(2), rdispls(2)
    integer(c_int64_t), target, asynchronous :: sent(2), received(2)
    type(EPX_Graph) :: graph
    type(EPX_Request) :: requests(1)
    type(MPI_Status) :: status
    integer(c_int) :: error, up, down
    integer :: time

    up = modulo(rank + 1, ranks)
    down = modulo(rank - 1, ranks)
    call EPX_Graph_create_adjacent(comm, 2_c_int, [down, up], 2_c_int, [up, down], graph, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Graph_create_adjacent')
    call expect(graph /= EPX_GRAPH_NULL, 'a graph is made')
    sendcounts = 1
    sdispls = [0, 1]
    call EPX_Neighbor_alltoallv_init(B(sent), B(sendcounts), B(sdispls), B(received), &
                                     B(recvcounts), B(rdispls), 2_c_int64_t, 8_c_int, EPX_BYTE, &
                                     graph, EPX_STREAM_NULL, EPX_FIXED_COUNTS, requests(1), error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Neighbor_alltoallv_init')
    do time = 1, 3
      sent = [100*time + 2*rank, 100*time + 2*rank + 1]
      if (time < 3) then
        call EPX_Start(requests(1), error)
        call expect_code(error, EPX_SUCCESS, 'EPX_Start')
        call EPX_Wait(requests(1), status, error)
      else
        call EPX_Request_free(requests(1), error)
        call EPX_Neighbor_alltoallv(B(sent), B(sendcounts), B(sdispls), B(received), &
                                    B(recvcounts), B(rdispls), 2_c_int64_t, 8_c_int, EPX_BYTE, &
                                    graph, EPX_STREAM_NULL, requests(1), error)
        call expect_code(error, EPX_SUCCESS, 'EPX_Neighbor_alltoallv')
        call EPX_Wait(requests(1), status, error)
      end if
      call expect_code(error, EPX_SUCCESS, 'EPX_Wait')
      call expect_rows(status, 2, 'EPX_Neighbor_alltoallv')
      call expect(all(received == [100*time + 2*down, 100*time + 2*up + 1]), 'rows of neighbours')
    end do
    call EPX_Graph_free(graph, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Graph_free')
    call expect(graph == EPX_GRAPH_NULL, 'a graph is freed')
  end subroutine

  subroutine errors_come_with_their_message()
    type(EPX_Request) :: request
    character(len=EPX_MAX_ERROR_STRING) :: message
    integer(c_int) :: error, length, later
    real(c_float), target :: sums(HIDDEN, TOKENS)

    call EPX_Combine(B(rows), B(row_weights), B(sums), -1_c_int, EPX_FLOAT32, route, &
                     EPX_STREAM_NULL, request, error)
    call expect_code(error, EPX_ERR_COUNT, 'EPX_Combine of count -1')
    call expect(request == EPX_REQUEST_NULL, 'a call that failed left no request')
    call EPX_Comm_get_error_message(comm, message, length)
    call expect(message(:length) == 'EPX_Combine: count is -1', 'message of count -1')
    call EPX_Wait(request, ierror=error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Wait for a null request')
    call EPX_Comm_get_async_error(comm, later, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Comm_get_async_error')
    call expect_code(later, EPX_SUCCESS, 'asynchronous error')
    call EPX_Combine(B(rows), B(row_weights), B(sums), HIDDEN, EPX_FLOAT32, &
                     EPX_ROUTE_NULL, EPX_STREAM_NULL, request, error)
    call expect_code(error, EPX_ERR_ROUTE, 'EPX_Combine on no route')
  end subroutine

#ifndef EPX_F08_C_PTR
  ! A section would be copied, and the copy be gone when the operation reads it.
  subroutine a_buffer_with_gaps_is_refused()
    type(EPX_Request) :: request
    character(len=EPX_MAX_ERROR_STRING) :: message
    integer(c_int) :: error, length
    real(c_float), target :: wide(2*HIDDEN, TOKENS)

    wide = 7
    call EPX_Dispatch(wide(::2, :), weights, rows, row_weights, HIDDEN, EPX_FLOAT32, &
                      route, EPX_STREAM_NULL, request, error)
    call expect_code(error, EPX_ERR_BUFFER, 'EPX_Dispatch of a section')
    call expect(request == EPX_REQUEST_NULL, 'a refused call left no request')
    call EPX_Comm_get_error_message(comm, message, length)
    call expect(message(:length) == 'EPX_Dispatch: sendbuf is not contiguous', &
                'message of a section')
    call EPX_Dispatch(wide(::2, :), weights, rows, row_weights, HIDDEN, EPX_FLOAT32, &
                      EPX_ROUTE_NULL, EPX_STREAM_NULL, request, error)
    call expect_code(error, EPX_ERR_ROUTE, 'EPX_Dispatch of a section on no route')
  end subroutine
#endif

  subroutine close_all()
    type(EPX_Stats) :: stats
    type(EPX_Waits) :: waits
    integer(c_int64_t), target :: ns(64), operations(64)
    integer(c_int) :: parents(64), i
    integer(c_int) :: error

    call EPX_Comm_get_ranks(comm, parents, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Comm_get_ranks')
    call expect(all(parents(:ranks) == [(i - 1, i = 1, ranks)]), 'ranks of the parent')
    ns = -1
    waits%ns = c_loc(ns)
    waits%operations = c_loc(operations)
    call EPX_Comm_get_waits(comm, waits, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Comm_get_waits')
    call expect(waits%num_ranks == ranks .and. all(ns(:ranks) >= 0), 'waits')
    call EPX_Comm_get_stats(comm, stats, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Comm_get_stats')
    call expect(stats%calls == 19 .and. stats%host_syncs == 0, 'statistics')
    call EPX_Free_mem(B(rows), comm, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Free_mem')
    call EPX_Route_free(route, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Route_free')
    call expect(route == EPX_ROUTE_NULL, 'a freed route is null')
    call EPX_Comm_free(comm, error)
    call expect_code(error, EPX_SUCCESS, 'EPX_Comm_free')
    call expect(comm == EPX_COMM_NULL, 'a freed communicator is null')
    deallocate (row_weights)
  end subroutine
end module checks

program fortran
  use checks
  implicit none

  call library_tells_its_version()
  call MPI_Init()
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
  call open_comm()
  call a_communicator_needs_no_mpi()
  call open_route()
  call rows_arrive_with_their_weights()
  call one_call_does_what_two_did()
  call slabs_have_their_place()
  call fields_travel_together()
  call combine_sums_what_dispatch_sent()
  call sums_start_from_biases()
  call gradients_go_the_other_way()
  call alltoallv_counts_what_it_receives()
  call a_persistent_exchange_is_started_again()
  call neighbours_exchange_numbers()
  call errors_come_with_their_message()
#ifndef EPX_F08_C_PTR
  call a_buffer_with_gaps_is_refused()
#endif
  call close_all()
  call MPI_Allreduce(MPI_IN_PLACE, failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  call MPI_Finalize()
  if (rank == 0 .and. failures == 0) print '(a)', ' No Errors'
  if (failures > 0) error stop 1
end program fortran
