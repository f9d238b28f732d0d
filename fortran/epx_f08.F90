! SPDX-License-Identifier: BSD-3-Clause
! epx_f08 - EPX for Fortran, beside mpi_f08: every function of epx.h as a subroutine with an
! optional ierror at its end. Compile it with the application, see FORTRAN in epx(7). With
! EPX_F08_C_PTR defined buffers are type(c_ptr), for compilers without assumed rank.
#ifdef EPX_F08_C_PTR
#define ANY_IN type(c_ptr), intent(in)
#define ANY_OUT type(c_ptr), intent(in)
#define FLOATS_IN type(c_ptr), intent(in)
#define FLOATS_OUT type(c_ptr), intent(in)
#define COUNTS_IN type(c_ptr), intent(in)
#define COUNTS_OUT type(c_ptr), intent(in)
#define IN_ONE_PIECE(buffer) .true.
#define ADDRESS_OF(buffer) buffer
#else
#define ANY_IN type(*), dimension(..), intent(in), target, asynchronous
#define ANY_OUT type(*), dimension(..), target, asynchronous
#define FLOATS_IN real(c_float), dimension(..), intent(in), target, asynchronous
#define FLOATS_OUT real(c_float), dimension(..), target, asynchronous
#define COUNTS_IN integer(c_int64_t), dimension(..), intent(in), target, asynchronous
#define COUNTS_OUT integer(c_int64_t), dimension(..), target, asynchronous
#define IN_ONE_PIECE(buffer) is_contiguous(buffer)
#define ADDRESS_OF(buffer) c_loc(buffer)
#endif
module epx_f08
  use, intrinsic :: iso_c_binding
  use mpi_f08, only: MPI_Comm, MPI_Info, MPI_Errhandler, MPI_Status, MPI_STATUS_IGNORE, &
                     MPI_STATUSES_IGNORE, MPI_ADDRESS_KIND, MPI_COUNT_KIND, MPI_ANY_SOURCE, &
                     MPI_ANY_TAG, MPI_BYTE, MPI_Status_set_elements_x, MPI_Status_set_cancelled
  implicit none
  private

  integer(c_int), parameter, public :: EPX_VERSION_MAJOR = 0
  integer(c_int), parameter, public :: EPX_VERSION_MINOR = 3
  integer(c_int), parameter, public :: EPX_VERSION_PATCH = 0

  integer(c_int), parameter, public :: EPX_SUCCESS = 0
  integer(c_int), parameter, public :: EPX_ERR_ARG = 1
  integer(c_int), parameter, public :: EPX_ERR_COMM = 2
  integer(c_int), parameter, public :: EPX_ERR_ROUTE = 3
  integer(c_int), parameter, public :: EPX_ERR_REQUEST = 4
  integer(c_int), parameter, public :: EPX_ERR_BUFFER = 5
  integer(c_int), parameter, public :: EPX_ERR_COUNT = 6
  integer(c_int), parameter, public :: EPX_ERR_TYPE = 7
  integer(c_int), parameter, public :: EPX_ERR_INFO = 8
  integer(c_int), parameter, public :: EPX_ERR_TRUNCATE = 9
  integer(c_int), parameter, public :: EPX_ERR_PENDING = 10
  integer(c_int), parameter, public :: EPX_ERR_IN_STATUS = 11
  integer(c_int), parameter, public :: EPX_ERR_TIMEOUT = 12
  integer(c_int), parameter, public :: EPX_ERR_NO_MEM = 13
  integer(c_int), parameter, public :: EPX_ERR_TRANSPORT = 14
  integer(c_int), parameter, public :: EPX_ERR_UNSUPPORTED = 15
  integer(c_int), parameter, public :: EPX_ERR_NOT_INITIALIZED = 16
  integer(c_int), parameter, public :: EPX_ERR_MPI = 17
  integer(c_int), parameter, public :: EPX_ERR_CUDA = 18
  integer(c_int), parameter, public :: EPX_ERR_INTERN = 19
  integer(c_int), parameter, public :: EPX_ERR_LASTCODE = 20

  integer(c_int), parameter, public :: EPX_MAX_LIBRARY_VERSION_STRING = 256
  integer(c_int), parameter, public :: EPX_MAX_ERROR_STRING = 512
  integer(c_int), parameter, public :: EPX_MAX_HINT_STRING = 64
  integer(c_int), parameter, public :: EPX_MAX_FIELDS = 4
  integer(c_int), parameter, public :: EPX_MAX_BIASES = 2

  integer(c_int), parameter, public :: EPX_FROM_TOPOLOGY = -1
  integer(c_int), parameter, public :: EPX_FIXED_COUNTS = 1

  integer(c_int), parameter, public :: EPX_DATATYPE_NULL = 0
  integer(c_int), parameter, public :: EPX_BYTE = 1
  integer(c_int), parameter, public :: EPX_FLOAT8_E4M3 = 2
  integer(c_int), parameter, public :: EPX_FLOAT8_E5M2 = 3
  integer(c_int), parameter, public :: EPX_FLOAT16 = 4
  integer(c_int), parameter, public :: EPX_BFLOAT16 = 5
  integer(c_int), parameter, public :: EPX_FLOAT32 = 6
  integer(c_int), parameter, public :: EPX_FLOAT64 = 7

  integer(c_int), parameter, public :: EPX_EXPERT_MAJOR = 1
  integer(c_int), parameter, public :: EPX_RANK_MAJOR = 2
  integer(c_int), parameter, public :: EPX_EXPERT_SLAB = 3

  integer(c_int), parameter, public :: EPX_OVERFLOW_ERROR = 1
  integer(c_int), parameter, public :: EPX_OVERFLOW_DROP = 2

  type, bind(C), public :: EPX_Comm
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: EPX_Route
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: EPX_Request
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: EPX_Graph
    type(c_ptr) :: handle = c_null_ptr
  end type
  type, bind(C), public :: EPX_Stream
    type(c_ptr) :: handle = c_null_ptr
  end type

  type(EPX_Comm), parameter, public :: EPX_COMM_NULL = EPX_Comm(c_null_ptr)
  type(EPX_Route), parameter, public :: EPX_ROUTE_NULL = EPX_Route(c_null_ptr)
  type(EPX_Request), parameter, public :: EPX_REQUEST_NULL = EPX_Request(c_null_ptr)
  type(EPX_Graph), parameter, public :: EPX_GRAPH_NULL = EPX_Graph(c_null_ptr)
  type(EPX_Stream), parameter, public :: EPX_STREAM_NULL = EPX_Stream(c_null_ptr)

  ! The calls set size, in these structs.
  type, bind(C), public :: EPX_Route_attr
    integer(c_size_t) :: size = 0
    integer(c_int) :: num_experts = 0
    integer(c_int) :: top_k = 0
    integer(c_int) :: max_tokens = 0
    integer(c_int) :: alignment = 1
    integer(c_int64_t) :: recv_capacity = 0
    integer(c_int64_t) :: max_row_bytes = 0
    integer(c_int) :: index_bits = 64
    integer(c_int) :: layout = EPX_EXPERT_MAJOR
    integer(c_int) :: overflow = EPX_OVERFLOW_ERROR
    integer(c_int64_t) :: rows_per_expert = 0
    integer(c_int) :: zero_unused = 0
    integer(c_int64_t) :: distinct_experts = 0
  end type

  type, bind(C), public :: EPX_Route_view
    integer(c_size_t) :: size = 0
    integer(c_int) :: num_local_experts = 0
    integer(c_int) :: first_local_expert = 0
    integer(c_int64_t) :: capacity = 0
    type(c_ptr) :: expert_counts = c_null_ptr  ! integer(c_int32_t) (num_local_experts)
    type(c_ptr) :: expert_offsets = c_null_ptr ! integer(c_int64_t) (num_local_experts + 1)
    type(c_ptr) :: rank_counts = c_null_ptr    ! integer(c_int32_t) (ranks)
    type(c_ptr) :: num_rows = c_null_ptr       ! integer(c_int64_t)
    type(c_ptr) :: required_rows = c_null_ptr  ! integer(c_int64_t)
    type(c_ptr) :: slots = c_null_ptr          ! integer(c_int32_t) (top_k, max_tokens), from 0
    type(c_ptr) :: row_expert_ids = c_null_ptr ! integer(c_int32_t) (top_k, capacity)
    type(c_ptr) :: row_tokens = c_null_ptr     ! integer(c_int32_t) (capacity), from 0
    type(c_ptr) :: row_ranks = c_null_ptr      ! integer(c_int32_t) (capacity)
    type(c_ptr) :: expert_ends = c_null_ptr    ! integer(c_int32_t) (num_local_experts)
    type(c_ptr) :: group_sizes = c_null_ptr    ! integer(c_int32_t) (num_local_experts)
    type(c_ptr) :: overflow = c_null_ptr       ! integer(c_int32_t)
    type(c_ptr) :: row_choices = c_null_ptr    ! integer(c_int32_t) (capacity), from 0
  end type

  type, bind(C), public :: EPX_Waits
    integer(c_size_t) :: size = 0
    integer(c_int) :: num_ranks = 0
    type(c_ptr) :: ns = c_null_ptr
    type(c_ptr) :: operations = c_null_ptr
  end type

  type, bind(C), public :: EPX_Stats
    integer(c_size_t) :: size = 0
    integer(c_int64_t) :: calls = 0
    integer(c_int64_t) :: rows_self = 0
    integer(c_int64_t) :: rows_node = 0
    integer(c_int64_t) :: rows_network = 0
    integer(c_int64_t) :: bytes_self = 0
    integer(c_int64_t) :: bytes_node = 0
    integer(c_int64_t) :: bytes_network = 0
    integer(c_int64_t) :: dropped_rows = 0
    integer(c_int64_t) :: timeouts = 0
    integer(c_int64_t) :: host_syncs = 0
    integer(c_int64_t) :: messages = 0
  end type

  ! As in epx.h; allgather is the C address of a procedure that is bind(C), from c_funloc.
  type, bind(C), public :: EPX_Bootstrap
    integer(c_size_t) :: size = 0
    integer(c_int) :: rank = 0
    integer(c_int) :: num_ranks = 1
    type(c_funptr) :: allgather = c_null_funptr
    type(c_ptr) :: arg = c_null_ptr
  end type

  public :: EPX_Get_version, EPX_Get_library_version, EPX_Error_string
  public :: EPX_Comm_create, EPX_Comm_create_from
  public :: EPX_Comm_free, EPX_Comm_rank, EPX_Comm_size, EPX_Comm_get_info
  public :: EPX_Comm_set_errhandler, EPX_Comm_get_async_error, EPX_Comm_get_error_message
  public :: EPX_Get_error_message, EPX_Comm_get_hint
  public :: EPX_Comm_shrink, EPX_Comm_get_ranks
  public :: EPX_Comm_get_stats, EPX_Comm_get_waits, EPX_Alloc_mem, EPX_Free_mem
  public :: EPX_Route_create, EPX_Route_free, EPX_Route_set_capacity, EPX_Route_tokens
  public :: EPX_Route_set_counts, EPX_Route_get_view
  public :: EPX_Dispatch, EPX_Route_dispatch, EPX_Combine, EPX_Combine_from
  public :: EPX_Dispatch_fields, EPX_Route_dispatch_fields
  public :: EPX_Dispatch_backward, EPX_Combine_backward, EPX_Alltoallv
  public :: EPX_Graph_create_adjacent, EPX_Graph_free
  public :: EPX_Neighbor_alltoallv, EPX_Neighbor_alltoallv_init
  public :: EPX_Alltoallv_init, EPX_Start, EPX_Startall, EPX_Request_free
  public :: EPX_Wait, EPX_Test, EPX_Waitall, EPX_Wait_enqueue
  public :: operator(==), operator(/=)

  interface operator(==)
    procedure same_comm, same_route, same_request, same_graph, same_stream
  end interface
  interface operator(/=)
    procedure other_comm, other_route, other_request, other_graph, other_stream
  end interface

  integer, parameter :: NAME_LENGTH = 32

  ! What a request completed with; error is -1 if its status is to be left alone.
  type, bind(C) :: outcome
    integer(c_int64_t) :: rows
    integer(c_int) :: error
  end type

  interface
    integer(c_int) function c_get_version(major, minor, patch) bind(C, name="EPX_Get_version")
      import
      integer(c_int), intent(out) :: major, minor, patch
    end function

    integer(c_int) function c_get_library_version(version, resultlen) &
        bind(C, name="EPX_Get_library_version")
      import
      character(kind=c_char), intent(out) :: version(*)
      integer(c_int), intent(out) :: resultlen
    end function

    integer(c_int) function c_error_string(errorcode, string, resultlen) &
        bind(C, name="EPX_Error_string")
      import
      integer(c_int), value :: errorcode
      character(kind=c_char), intent(out) :: string(*)
      integer(c_int), intent(out) :: resultlen
    end function

    integer(c_int) function c_comm_create(comm, info, newcomm) bind(C, name="epx_f08_comm_create")
      import
      integer(c_int), value :: comm, info
      type(c_ptr), intent(inout) :: newcomm
    end function

    integer(c_int) function c_comm_create_from(bootstrap, hints, newcomm) &
        bind(C, name="EPX_Comm_create_from")
      import
      type(EPX_Bootstrap), intent(in) :: bootstrap
      type(c_ptr), intent(in) :: hints(*)
      type(c_ptr), intent(inout) :: newcomm
    end function

    integer(c_int) function c_comm_free(comm) bind(C, name="EPX_Comm_free")
      import
      type(c_ptr), intent(inout) :: comm
    end function

    integer(c_int) function c_comm_rank(comm, rank) bind(C, name="EPX_Comm_rank")
      import
      type(c_ptr), value :: comm
      integer(c_int), intent(inout) :: rank
    end function

    integer(c_int) function c_comm_size(comm, size) bind(C, name="EPX_Comm_size")
      import
      type(c_ptr), value :: comm
      integer(c_int), intent(inout) :: size
    end function

    integer(c_int) function c_comm_get_info(comm, info_used) bind(C, name="epx_f08_comm_get_info")
      import
      type(c_ptr), value :: comm
      integer(c_int), intent(inout) :: info_used
    end function

    integer(c_int) function c_comm_set_errhandler(comm, errhandler) &
        bind(C, name="epx_f08_comm_set_errhandler")
      import
      type(c_ptr), value :: comm
      integer(c_int), value :: errhandler
    end function

    integer(c_int) function c_comm_get_async_error(comm, errorcode) &
        bind(C, name="EPX_Comm_get_async_error")
      import
      type(c_ptr), value :: comm
      integer(c_int), intent(inout) :: errorcode
    end function

    integer(c_int) function c_comm_get_error_message(comm, string, resultlen) &
        bind(C, name="EPX_Comm_get_error_message")
      import
      type(c_ptr), value :: comm
      character(kind=c_char), intent(out) :: string(*)
      integer(c_int), intent(out) :: resultlen
    end function

    integer(c_int) function c_comm_get_hint(comm, key, value, resultlen) &
        bind(C, name="EPX_Comm_get_hint")
      import
      type(c_ptr), value :: comm
      character(kind=c_char), intent(in) :: key(*)
      character(kind=c_char), intent(out) :: value(*)
      integer(c_int), intent(out) :: resultlen
    end function

    integer(c_int) function c_get_error_message(string, resultlen) &
        bind(C, name="EPX_Get_error_message")
      import
      character(kind=c_char), intent(out) :: string(*)
      integer(c_int), intent(out) :: resultlen
    end function

    integer(c_int) function c_comm_shrink(comm, newcomm) bind(C, name="EPX_Comm_shrink")
      import
      type(c_ptr), value :: comm
      type(c_ptr), intent(out) :: newcomm
    end function

    integer(c_int) function c_comm_get_ranks(comm, parent_ranks) bind(C, name="EPX_Comm_get_ranks")
      import
      type(c_ptr), value :: comm
      integer(c_int), intent(out) :: parent_ranks(*)
    end function

    integer(c_int) function c_comm_get_waits(comm, waits) bind(C, name="EPX_Comm_get_waits")
      import
      type(c_ptr), value :: comm
      type(EPX_Waits), intent(inout) :: waits
    end function
    integer(c_int) function c_comm_get_stats(comm, stats) bind(C, name="EPX_Comm_get_stats")
      import
      type(c_ptr), value :: comm
      type(EPX_Stats), intent(inout) :: stats
    end function

    integer(c_int) function c_alloc_mem(bytes, comm, baseptr) bind(C, name="EPX_Alloc_mem")
      import
      integer(c_intptr_t), value :: bytes
      type(c_ptr), value :: comm
      type(c_ptr), intent(inout) :: baseptr
    end function

    integer(c_int) function c_free_mem(base, comm) bind(C, name="EPX_Free_mem")
      import
      type(c_ptr), value :: base, comm
    end function

    integer(c_int) function c_route_create(attr, comm, route) bind(C, name="EPX_Route_create")
      import
      type(EPX_Route_attr), intent(in) :: attr
      type(c_ptr), value :: comm
      type(c_ptr), intent(inout) :: route
    end function

    integer(c_int) function c_route_free(route) bind(C, name="EPX_Route_free")
      import
      type(c_ptr), intent(inout) :: route
    end function

    integer(c_int) function c_route_set_capacity(route, recv_capacity) &
        bind(C, name="EPX_Route_set_capacity")
      import
      type(c_ptr), value :: route
      integer(c_int64_t), value :: recv_capacity
    end function

    integer(c_int) function c_route_set_counts(route, counts) &
        bind(C, name="EPX_Route_set_counts")
      import
      type(c_ptr), value :: route, counts
    end function

    integer(c_int) function c_route_tokens(expert_ids, num_tokens, route, stream, request) &
        bind(C, name="EPX_Route_tokens")
      import
      type(c_ptr), value :: expert_ids, route, stream
      integer(c_int), value :: num_tokens
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_route_get_view(route, view) bind(C, name="EPX_Route_get_view")
      import
      type(c_ptr), value :: route
      type(EPX_Route_view), intent(inout) :: view
    end function

    integer(c_int) function c_dispatch(sendbuf, weights, recvbuf, recv_weights, count, datatype, &
        route, stream, request) bind(C, name="EPX_Dispatch")
      import
      type(c_ptr), value :: sendbuf, weights, recvbuf, recv_weights, route, stream
      integer(c_int), value :: count, datatype
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_route_dispatch(expert_ids, num_tokens, sendbuf, weights, recvbuf, &
        recv_weights, count, datatype, route, stream, request) bind(C, name="EPX_Route_dispatch")
      import
      type(c_ptr), value :: expert_ids, sendbuf, weights, recvbuf, recv_weights, route, stream
      integer(c_int), value :: num_tokens, count, datatype
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_dispatch_fields(nfields, sendbufs, recvbufs, counts, datatypes, &
        weights, recv_weights, route, stream, request) bind(C, name="EPX_Dispatch_fields")
      import
      integer(c_int), value :: nfields
      type(c_ptr), intent(in) :: sendbufs(*), recvbufs(*)
      integer(c_int), intent(in) :: counts(*), datatypes(*)
      type(c_ptr), value :: weights, recv_weights, route, stream
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_route_dispatch_fields(expert_ids, num_tokens, nfields, sendbufs, &
        recvbufs, counts, datatypes, weights, recv_weights, route, stream, request) &
        bind(C, name="EPX_Route_dispatch_fields")
      import
      type(c_ptr), value :: expert_ids
      integer(c_int), value :: num_tokens, nfields
      type(c_ptr), intent(in) :: sendbufs(*), recvbufs(*)
      integer(c_int), intent(in) :: counts(*), datatypes(*)
      type(c_ptr), value :: weights, recv_weights, route, stream
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_combine(sendbuf, weights, recvbuf, count, datatype, route, stream, &
        request) bind(C, name="EPX_Combine")
      import
      type(c_ptr), value :: sendbuf, weights, recvbuf, route, stream
      integer(c_int), value :: count, datatype
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_combine_from(sendbuf, weights, num_biases, biases, token_weights, &
        recvbuf, count, datatype, route, stream, request) bind(C, name="EPX_Combine_from")
      import
      type(c_ptr), value :: sendbuf, weights, token_weights, recvbuf, route, stream
      integer(c_int), value :: num_biases, count, datatype
      type(c_ptr), intent(in) :: biases(*)
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_dispatch_backward(grad_recv, grad_recv_weights, grad_send, &
        grad_weights, count, datatype, route, stream, request) bind(C, name="EPX_Dispatch_backward")
      import
      type(c_ptr), value :: grad_recv, grad_recv_weights, grad_send, grad_weights, route, stream
      integer(c_int), value :: count, datatype
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_combine_backward(grad, sendbuf, weights, grad_sendbuf, &
        grad_slot_weights, count, datatype, route, stream, request) &
        bind(C, name="EPX_Combine_backward")
      import
      type(c_ptr), value :: grad, sendbuf, weights, grad_sendbuf, grad_slot_weights, route, stream
      integer(c_int), value :: count, datatype
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_alltoallv(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, &
        rdispls, recv_capacity, count, datatype, comm, stream, request) &
        bind(C, name="EPX_Alltoallv")
      import
      type(c_ptr), value :: sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls
      type(c_ptr), value :: comm, stream
      integer(c_int64_t), value :: recv_capacity
      integer(c_int), value :: count, datatype
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_alltoallv_init(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, &
        rdispls, recv_capacity, count, datatype, comm, stream, flags, request) &
        bind(C, name="EPX_Alltoallv_init")
      import
      type(c_ptr), value :: sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls
      type(c_ptr), value :: comm, stream
      integer(c_int64_t), value :: recv_capacity
      integer(c_int), value :: count, datatype, flags
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_graph_create_adjacent(comm, indegree, sources, outdegree, &
        destinations, graph) bind(C, name="EPX_Graph_create_adjacent")
      import
      type(c_ptr), value :: comm
      integer(c_int), value :: indegree, outdegree
      integer(c_int), intent(in) :: sources(*), destinations(*)
      type(c_ptr), intent(inout) :: graph
    end function

    integer(c_int) function c_graph_free(graph) bind(C, name="EPX_Graph_free")
      import
      type(c_ptr), intent(inout) :: graph
    end function

    type(c_ptr) function c_graph_comm(graph) bind(C, name="epx_f08_graph_comm")
      import
      type(c_ptr), value :: graph
    end function

    integer(c_int) function c_neighbor_alltoallv(sendbuf, sendcounts, sdispls, recvbuf, &
        recvcounts, rdispls, recv_capacity, count, datatype, graph, stream, request) &
        bind(C, name="EPX_Neighbor_alltoallv")
      import
      type(c_ptr), value :: sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls
      type(c_ptr), value :: graph, stream
      integer(c_int64_t), value :: recv_capacity
      integer(c_int), value :: count, datatype
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_neighbor_alltoallv_init(sendbuf, sendcounts, sdispls, recvbuf, &
        recvcounts, rdispls, recv_capacity, count, datatype, graph, stream, flags, request) &
        bind(C, name="EPX_Neighbor_alltoallv_init")
      import
      type(c_ptr), value :: sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls
      type(c_ptr), value :: graph, stream
      integer(c_int64_t), value :: recv_capacity
      integer(c_int), value :: count, datatype, flags
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_start(request) bind(C, name="EPX_Start")
      import
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_startall(n, requests) bind(C, name="EPX_Startall")
      import
      integer(c_int), value :: n
      type(EPX_Request), intent(inout) :: requests(*)
    end function

    integer(c_int) function c_request_free(request) bind(C, name="EPX_Request_free")
      import
      type(c_ptr), intent(inout) :: request
    end function

    integer(c_int) function c_wait(request, completed) bind(C, name="epx_f08_wait")
      import
      type(c_ptr), intent(inout) :: request
      type(outcome), intent(out) :: completed
    end function

    integer(c_int) function c_test(request, flag, completed) bind(C, name="epx_f08_test")
      import
      type(c_ptr), intent(inout) :: request
      integer(c_int), intent(inout) :: flag
      type(outcome), intent(out) :: completed
    end function

    integer(c_int) function c_waitall(n, requests, completed) bind(C, name="epx_f08_waitall")
      import
      integer(c_int), value :: n
      type(EPX_Request), intent(inout) :: requests(*)
      type(outcome), intent(out) :: completed(*)
    end function

    integer(c_int) function c_wait_enqueue(request, stream) bind(C, name="EPX_Wait_enqueue")
      import
      type(c_ptr), intent(inout) :: request
      type(c_ptr), value :: stream
    end function

    ! Fails as the function would, because of the buffer.
    integer(c_int) function c_refuse(function, buffer, comm, route) bind(C, name="epx_f08_refuse")
      import
      character(kind=c_char), intent(in) :: function(*), buffer(*)
      type(c_ptr), value :: comm, route
    end function
  end interface

contains

  ! Library

  subroutine EPX_Get_version(major, minor, patch, ierror)
    integer(c_int), intent(out) :: major, minor, patch
    integer(c_int), intent(out), optional :: ierror

    call report(c_get_version(major, minor, patch), ierror)
  end subroutine

  subroutine EPX_Get_library_version(version, resultlen, ierror)
    character(len=*), intent(out) :: version
    integer(c_int), intent(out) :: resultlen
    integer(c_int), intent(out), optional :: ierror
    character(kind=c_char) :: text(EPX_MAX_LIBRARY_VERSION_STRING)
    integer(c_int) :: length, error

    length = 0
    error = c_get_library_version(text, length)
    call store_text(text, length, version, resultlen)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Error_string(errorcode, string, resultlen, ierror)
    integer(c_int), intent(in) :: errorcode
    character(len=*), intent(out) :: string
    integer(c_int), intent(out) :: resultlen
    integer(c_int), intent(out), optional :: ierror
    character(kind=c_char) :: text(EPX_MAX_ERROR_STRING)
    integer(c_int) :: length, error

    length = 0
    error = c_error_string(errorcode, text, length)
    call store_text(text, length, string, resultlen)
    call report(error, ierror)
  end subroutine

  ! Communicator

  subroutine EPX_Comm_create(comm, info, newcomm, ierror)
    type(MPI_Comm), intent(in) :: comm
    type(MPI_Info), intent(in) :: info
    type(EPX_Comm), intent(out) :: newcomm
    integer(c_int), intent(out), optional :: ierror

    call report(c_comm_create(int(comm%MPI_VAL, c_int), int(info%MPI_VAL, c_int), newcomm%handle), &
                ierror)
  end subroutine

  subroutine EPX_Comm_create_from(bootstrap, hints, newcomm, ierror)
    type(EPX_Bootstrap), intent(in) :: bootstrap
    character(len=*), intent(in) :: hints(:)
    type(EPX_Comm), intent(out) :: newcomm
    integer(c_int), intent(out), optional :: ierror
    type(EPX_Bootstrap) :: sized
    character(kind=c_char, len=len(hints) + 1), target :: texts(size(hints))
    type(c_ptr) :: list(size(hints) + 1)
    integer :: i

    do i = 1, size(hints)
      texts(i) = trim(hints(i)) // c_null_char
      list(i) = c_loc(texts(i))
    end do
    list(size(list)) = c_null_ptr
    sized = bootstrap
    sized%size = c_sizeof(sized)
    call report(c_comm_create_from(sized, list, newcomm%handle), ierror)
  end subroutine

  subroutine EPX_Comm_free(comm, ierror)
    type(EPX_Comm), intent(inout) :: comm
    integer(c_int), intent(out), optional :: ierror

    call report(c_comm_free(comm%handle), ierror)
  end subroutine

  subroutine EPX_Comm_rank(comm, rank, ierror)
    type(EPX_Comm), intent(in) :: comm
    integer(c_int), intent(out) :: rank
    integer(c_int), intent(out), optional :: ierror

    rank = -1
    call report(c_comm_rank(comm%handle, rank), ierror)
  end subroutine

  subroutine EPX_Comm_size(comm, size, ierror)
    type(EPX_Comm), intent(in) :: comm
    integer(c_int), intent(out) :: size
    integer(c_int), intent(out), optional :: ierror

    size = -1
    call report(c_comm_size(comm%handle, size), ierror)
  end subroutine

  subroutine EPX_Comm_get_info(comm, info_used, ierror)
    type(EPX_Comm), intent(in) :: comm
    type(MPI_Info), intent(inout) :: info_used
    integer(c_int), intent(out), optional :: ierror
    integer(c_int) :: info, error

    error = c_comm_get_info(comm%handle, info)
    if (error == EPX_SUCCESS) info_used%MPI_VAL = info
    call report(error, ierror)
  end subroutine

  subroutine EPX_Comm_get_hint(comm, key, value, resultlen, ierror)
    type(EPX_Comm), intent(in) :: comm
    character(len=*), intent(in) :: key
    character(len=*), intent(out) :: value
    integer(c_int), intent(out) :: resultlen
    integer(c_int), intent(out), optional :: ierror
    character(kind=c_char) :: text(EPX_MAX_HINT_STRING)
    integer(c_int) :: length, error

    length = 0
    error = c_comm_get_hint(comm%handle, trim(key) // c_null_char, text, length)
    call store_text(text, length, value, resultlen)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Comm_set_errhandler(comm, errhandler, ierror)
    type(EPX_Comm), intent(in) :: comm
    type(MPI_Errhandler), intent(in) :: errhandler
    integer(c_int), intent(out), optional :: ierror

    call report(c_comm_set_errhandler(comm%handle, int(errhandler%MPI_VAL, c_int)), ierror)
  end subroutine

  subroutine EPX_Comm_get_async_error(comm, errorcode, ierror)
    type(EPX_Comm), intent(in) :: comm
    integer(c_int), intent(out) :: errorcode
    integer(c_int), intent(out), optional :: ierror

    errorcode = EPX_SUCCESS
    call report(c_comm_get_async_error(comm%handle, errorcode), ierror)
  end subroutine

  subroutine EPX_Comm_get_error_message(comm, string, resultlen, ierror)
    type(EPX_Comm), intent(in) :: comm
    character(len=*), intent(out) :: string
    integer(c_int), intent(out) :: resultlen
    integer(c_int), intent(out), optional :: ierror
    character(kind=c_char) :: text(EPX_MAX_ERROR_STRING)
    integer(c_int) :: length, error

    length = 0
    error = c_comm_get_error_message(comm%handle, text, length)
    call store_text(text, length, string, resultlen)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Get_error_message(string, resultlen, ierror)
    character(len=*), intent(out) :: string
    integer(c_int), intent(out) :: resultlen
    integer(c_int), intent(out), optional :: ierror
    character(kind=c_char) :: text(EPX_MAX_ERROR_STRING)
    integer(c_int) :: length, error

    length = 0
    error = c_get_error_message(text, length)
    call store_text(text, length, string, resultlen)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Comm_shrink(comm, newcomm, ierror)
    type(EPX_Comm), intent(in) :: comm
    type(EPX_Comm), intent(out) :: newcomm
    integer(c_int), intent(out), optional :: ierror

    call report(c_comm_shrink(comm%handle, newcomm%handle), ierror)
  end subroutine

  subroutine EPX_Comm_get_ranks(comm, parent_ranks, ierror)
    type(EPX_Comm), intent(in) :: comm
    integer(c_int), intent(out) :: parent_ranks(*)
    integer(c_int), intent(out), optional :: ierror

    call report(c_comm_get_ranks(comm%handle, parent_ranks), ierror)
  end subroutine

  subroutine EPX_Comm_get_waits(comm, waits, ierror)
    type(EPX_Comm), intent(in) :: comm
    type(EPX_Waits), intent(inout) :: waits
    integer(c_int), intent(out), optional :: ierror

    waits%size = c_sizeof(waits)
    call report(c_comm_get_waits(comm%handle, waits), ierror)
  end subroutine

  subroutine EPX_Comm_get_stats(comm, stats, ierror)
    type(EPX_Comm), intent(in) :: comm
    type(EPX_Stats), intent(out) :: stats
    integer(c_int), intent(out), optional :: ierror

    stats%size = c_sizeof(stats)
    call report(c_comm_get_stats(comm%handle, stats), ierror)
  end subroutine

  ! Memory

  subroutine EPX_Alloc_mem(bytes, comm, baseptr, ierror)
    integer(MPI_ADDRESS_KIND), intent(in) :: bytes
    type(EPX_Comm), intent(in) :: comm
    type(c_ptr), intent(out) :: baseptr
    integer(c_int), intent(out), optional :: ierror

    baseptr = c_null_ptr
    call report(c_alloc_mem(int(bytes, c_intptr_t), comm%handle, baseptr), ierror)
  end subroutine

  subroutine EPX_Free_mem(base, comm, ierror)
    ANY_IN :: base
    type(EPX_Comm), intent(in) :: comm
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused

    refused = ''
    call report(c_free_mem(address(base, 'base', refused), comm%handle), ierror)
  end subroutine

  ! Route

  subroutine EPX_Route_create(attr, comm, route, ierror)
    type(EPX_Route_attr), intent(in) :: attr
    type(EPX_Comm), intent(in) :: comm
    type(EPX_Route), intent(out) :: route
    integer(c_int), intent(out), optional :: ierror
    type(EPX_Route_attr) :: sized

    sized = attr
    sized%size = c_sizeof(sized)
    call report(c_route_create(sized, comm%handle, route%handle), ierror)
  end subroutine

  subroutine EPX_Route_free(route, ierror)
    type(EPX_Route), intent(inout) :: route
    integer(c_int), intent(out), optional :: ierror

    call report(c_route_free(route%handle), ierror)
  end subroutine

  subroutine EPX_Route_set_capacity(route, recv_capacity, ierror)
    type(EPX_Route), intent(in) :: route
    integer(c_int64_t), intent(in) :: recv_capacity
    integer(c_int), intent(out), optional :: ierror

    call report(c_route_set_capacity(route%handle, recv_capacity), ierror)
  end subroutine

  subroutine EPX_Route_set_counts(route, counts, ierror)
    type(EPX_Route), intent(in) :: route
    type(c_ptr), intent(in) :: counts
    integer(c_int), intent(out), optional :: ierror

    call report(c_route_set_counts(route%handle, counts), ierror)
  end subroutine

  subroutine EPX_Route_tokens(expert_ids, num_tokens, route, stream, request, ierror)
    ANY_IN :: expert_ids
    integer(c_int), intent(in) :: num_tokens
    type(EPX_Route), intent(in) :: route
    type(EPX_Stream), intent(in) :: stream
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: ids
    integer(c_int) :: error

    refused = ''
    ids = address(expert_ids, 'expert_ids', refused)
    error = refuse('EPX_Route_tokens', refused, c_null_ptr, route%handle)
    if (error == EPX_SUCCESS) &
      error = c_route_tokens(ids, num_tokens, route%handle, stream%handle, request%handle)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Route_get_view(route, view, ierror)
    type(EPX_Route), intent(in) :: route
    type(EPX_Route_view), intent(out) :: view
    integer(c_int), intent(out), optional :: ierror

    view%size = c_sizeof(view)
    call report(c_route_get_view(route%handle, view), ierror)
  end subroutine

  ! Collectives

  subroutine EPX_Dispatch(sendbuf, weights, recvbuf, recv_weights, count, datatype, route, stream, &
      request, ierror)
    ANY_IN :: sendbuf
    FLOATS_IN, optional :: weights
    ANY_OUT :: recvbuf
    FLOATS_OUT, optional :: recv_weights
    integer(c_int), intent(in) :: count, datatype
    type(EPX_Route), intent(in) :: route
    type(EPX_Stream), intent(in) :: stream
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: from, from_weights, to, to_weights
    integer(c_int) :: error

    refused = ''
    from = address(sendbuf, 'sendbuf', refused)
    from_weights = address(weights, 'weights', refused)
    to = address(recvbuf, 'recvbuf', refused)
    to_weights = address(recv_weights, 'recv_weights', refused)
    error = refuse('EPX_Dispatch', refused, c_null_ptr, route%handle)
    if (error == EPX_SUCCESS) &
      error = c_dispatch(from, from_weights, to, to_weights, count, datatype, route%handle, &
                         stream%handle, request%handle)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Route_dispatch(expert_ids, num_tokens, sendbuf, weights, recvbuf, recv_weights, &
      count, datatype, route, stream, request, ierror)
    ANY_IN :: expert_ids
    integer(c_int), intent(in) :: num_tokens
    ANY_IN :: sendbuf
    FLOATS_IN, optional :: weights
    ANY_OUT :: recvbuf
    FLOATS_OUT, optional :: recv_weights
    integer(c_int), intent(in) :: count, datatype
    type(EPX_Route), intent(in) :: route
    type(EPX_Stream), intent(in) :: stream
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: ids, from, from_weights, to, to_weights
    integer(c_int) :: error

    refused = ''
    ids = address(expert_ids, 'expert_ids', refused)
    from = address(sendbuf, 'sendbuf', refused)
    from_weights = address(weights, 'weights', refused)
    to = address(recvbuf, 'recvbuf', refused)
    to_weights = address(recv_weights, 'recv_weights', refused)
    error = refuse('EPX_Route_dispatch', refused, c_null_ptr, route%handle)
    if (error == EPX_SUCCESS) &
      error = c_route_dispatch(ids, num_tokens, from, from_weights, to, to_weights, count, &
                               datatype, route%handle, stream%handle, request%handle)
    call report(error, ierror)
  end subroutine

  ! Buffers of several types make no array in Fortran: their addresses do, from c_loc.
  subroutine EPX_Dispatch_fields(nfields, sendbufs, recvbufs, counts, datatypes, weights, &
      recv_weights, route, stream, request, ierror)
    integer(c_int), intent(in) :: nfields
    type(c_ptr), intent(in) :: sendbufs(nfields), recvbufs(nfields)
    integer(c_int), intent(in) :: counts(nfields), datatypes(nfields)
    FLOATS_IN, optional :: weights
    FLOATS_OUT, optional :: recv_weights
    type(EPX_Route), intent(in) :: route
    type(EPX_Stream), intent(in) :: stream
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: from_weights, to_weights
    integer(c_int) :: error

    refused = ''
    from_weights = address(weights, 'weights', refused)
    to_weights = address(recv_weights, 'recv_weights', refused)
    error = refuse('EPX_Dispatch_fields', refused, c_null_ptr, route%handle)
    if (error == EPX_SUCCESS) &
      error = c_dispatch_fields(nfields, sendbufs, recvbufs, counts, datatypes, from_weights, &
                                to_weights, route%handle, stream%handle, request%handle)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Route_dispatch_fields(expert_ids, num_tokens, nfields, sendbufs, recvbufs, &
      counts, datatypes, weights, recv_weights, route, stream, request, ierror)
    ANY_IN :: expert_ids
    integer(c_int), intent(in) :: num_tokens, nfields
    type(c_ptr), intent(in) :: sendbufs(nfields), recvbufs(nfields)
    integer(c_int), intent(in) :: counts(nfields), datatypes(nfields)
    FLOATS_IN, optional :: weights
    FLOATS_OUT, optional :: recv_weights
    type(EPX_Route), intent(in) :: route
    type(EPX_Stream), intent(in) :: stream
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: ids, from_weights, to_weights
    integer(c_int) :: error

    refused = ''
    ids = address(expert_ids, 'expert_ids', refused)
    from_weights = address(weights, 'weights', refused)
    to_weights = address(recv_weights, 'recv_weights', refused)
    error = refuse('EPX_Route_dispatch_fields', refused, c_null_ptr, route%handle)
    if (error == EPX_SUCCESS) &
      error = c_route_dispatch_fields(ids, num_tokens, nfields, sendbufs, recvbufs, counts, &
                                      datatypes, from_weights, to_weights, route%handle, &
                                      stream%handle, request%handle)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Combine(sendbuf, weights, recvbuf, count, datatype, route, stream, request, ierror)
    ANY_IN :: sendbuf
    FLOATS_IN, optional :: weights
    ANY_OUT :: recvbuf
    integer(c_int), intent(in) :: count, datatype
    type(EPX_Route), intent(in) :: route
    type(EPX_Stream), intent(in) :: stream
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: from, from_weights, to
    integer(c_int) :: error

    refused = ''
    from = address(sendbuf, 'sendbuf', refused)
    from_weights = address(weights, 'weights', refused)
    to = address(recvbuf, 'recvbuf', refused)
    error = refuse('EPX_Combine', refused, c_null_ptr, route%handle)
    if (error == EPX_SUCCESS) &
      error = c_combine(from, from_weights, to, count, datatype, route%handle, stream%handle, &
                        request%handle)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Combine_from(sendbuf, weights, num_biases, biases, token_weights, recvbuf, count, &
      datatype, route, stream, request, ierror)
    ANY_IN :: sendbuf
    FLOATS_IN, optional :: weights
    integer(c_int), intent(in) :: num_biases
    type(c_ptr), intent(in) :: biases(num_biases)
    FLOATS_IN, optional :: token_weights
    ANY_OUT :: recvbuf
    integer(c_int), intent(in) :: count, datatype
    type(EPX_Route), intent(in) :: route
    type(EPX_Stream), intent(in) :: stream
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: from, from_weights, home_weights, to
    integer(c_int) :: error

    refused = ''
    from = address(sendbuf, 'sendbuf', refused)
    from_weights = address(weights, 'weights', refused)
    home_weights = address(token_weights, 'token_weights', refused)
    to = address(recvbuf, 'recvbuf', refused)
    error = refuse('EPX_Combine_from', refused, c_null_ptr, route%handle)
    if (error == EPX_SUCCESS) &
      error = c_combine_from(from, from_weights, num_biases, biases, home_weights, to, count, &
                             datatype, route%handle, stream%handle, request%handle)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Dispatch_backward(grad_recv, grad_recv_weights, grad_send, grad_weights, count, &
      datatype, route, stream, request, ierror)
    ANY_IN :: grad_recv
    FLOATS_IN, optional :: grad_recv_weights
    ANY_OUT :: grad_send
    FLOATS_OUT, optional :: grad_weights
    integer(c_int), intent(in) :: count, datatype
    type(EPX_Route), intent(in) :: route
    type(EPX_Stream), intent(in) :: stream
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: from, from_weights, to, to_weights
    integer(c_int) :: error

    refused = ''
    from = address(grad_recv, 'grad_recv', refused)
    from_weights = address(grad_recv_weights, 'grad_recv_weights', refused)
    to = address(grad_send, 'grad_send', refused)
    to_weights = address(grad_weights, 'grad_weights', refused)
    error = refuse('EPX_Dispatch_backward', refused, c_null_ptr, route%handle)
    if (error == EPX_SUCCESS) &
      error = c_dispatch_backward(from, from_weights, to, to_weights, count, datatype, &
                                  route%handle, stream%handle, request%handle)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Combine_backward(grad, sendbuf, weights, grad_sendbuf, grad_slot_weights, count, &
      datatype, route, stream, request, ierror)
    ANY_IN :: grad
    ANY_IN, optional :: sendbuf
    FLOATS_IN, optional :: weights
    ANY_OUT :: grad_sendbuf
    FLOATS_OUT, optional :: grad_slot_weights
    integer(c_int), intent(in) :: count, datatype
    type(EPX_Route), intent(in) :: route
    type(EPX_Stream), intent(in) :: stream
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: from, forward, from_weights, to, to_weights
    integer(c_int) :: error

    refused = ''
    from = address(grad, 'grad', refused)
    forward = address(sendbuf, 'sendbuf', refused)
    from_weights = address(weights, 'weights', refused)
    to = address(grad_sendbuf, 'grad_sendbuf', refused)
    to_weights = address(grad_slot_weights, 'grad_slot_weights', refused)
    error = refuse('EPX_Combine_backward', refused, c_null_ptr, route%handle)
    if (error == EPX_SUCCESS) &
      error = c_combine_backward(from, forward, from_weights, to, to_weights, count, datatype, &
                                 route%handle, stream%handle, request%handle)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Alltoallv(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls, &
      recv_capacity, count, datatype, comm, stream, request, ierror)
    ANY_IN :: sendbuf
    COUNTS_IN :: sendcounts, sdispls
    ANY_OUT :: recvbuf
    COUNTS_OUT :: recvcounts, rdispls
    integer(c_int64_t), intent(in) :: recv_capacity
    integer(c_int), intent(in) :: count, datatype
    type(EPX_Comm), intent(in) :: comm
    type(EPX_Stream), intent(in) :: stream
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: from, from_counts, from_displs, to, to_counts, to_displs
    integer(c_int) :: error

    refused = ''
    from = address(sendbuf, 'sendbuf', refused)
    from_counts = address(sendcounts, 'sendcounts', refused)
    from_displs = address(sdispls, 'sdispls', refused)
    to = address(recvbuf, 'recvbuf', refused)
    to_counts = address(recvcounts, 'recvcounts', refused)
    to_displs = address(rdispls, 'rdispls', refused)
    error = refuse('EPX_Alltoallv', refused, comm%handle, c_null_ptr)
    if (error == EPX_SUCCESS) &
      error = c_alltoallv(from, from_counts, from_displs, to, to_counts, to_displs, recv_capacity, &
                          count, datatype, comm%handle, stream%handle, request%handle)
    call report(error, ierror)
  end subroutine

  ! Exchanges with neighbours

  ! With EPX_FROM_TOPOLOGY the lists are not looked at.
  subroutine EPX_Graph_create_adjacent(comm, indegree, sources, outdegree, destinations, graph, &
      ierror)
    type(EPX_Comm), intent(in) :: comm
    integer(c_int), intent(in) :: indegree, sources(*), outdegree, destinations(*)
    type(EPX_Graph), intent(out) :: graph
    integer(c_int), intent(out), optional :: ierror

    call report(c_graph_create_adjacent(comm%handle, indegree, sources, outdegree, destinations, &
                                        graph%handle), ierror)
  end subroutine

  subroutine EPX_Graph_free(graph, ierror)
    type(EPX_Graph), intent(inout) :: graph
    integer(c_int), intent(out), optional :: ierror

    call report(c_graph_free(graph%handle), ierror)
  end subroutine

  subroutine EPX_Neighbor_alltoallv(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls, &
      recv_capacity, count, datatype, graph, stream, request, ierror)
    ANY_IN :: sendbuf
    COUNTS_IN :: sendcounts, sdispls
    ANY_OUT :: recvbuf
    COUNTS_OUT :: recvcounts, rdispls
    integer(c_int64_t), intent(in) :: recv_capacity
    integer(c_int), intent(in) :: count, datatype
    type(EPX_Graph), intent(in) :: graph
    type(EPX_Stream), intent(in) :: stream
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: from, from_counts, from_displs, to, to_counts, to_displs
    integer(c_int) :: error

    refused = ''
    from = address(sendbuf, 'sendbuf', refused)
    from_counts = address(sendcounts, 'sendcounts', refused)
    from_displs = address(sdispls, 'sdispls', refused)
    to = address(recvbuf, 'recvbuf', refused)
    to_counts = address(recvcounts, 'recvcounts', refused)
    to_displs = address(rdispls, 'rdispls', refused)
    error = refuse('EPX_Neighbor_alltoallv', refused, c_graph_comm(graph%handle), c_null_ptr)
    if (error == EPX_SUCCESS) &
      error = c_neighbor_alltoallv(from, from_counts, from_displs, to, to_counts, to_displs, &
                                   recv_capacity, count, datatype, graph%handle, stream%handle, &
                                   request%handle)
    call report(error, ierror)
  end subroutine

  ! Persistent operations

  subroutine EPX_Alltoallv_init(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, rdispls, &
      recv_capacity, count, datatype, comm, stream, flags, request, ierror)
    ANY_IN :: sendbuf
    COUNTS_IN :: sendcounts, sdispls
    ANY_OUT :: recvbuf
    COUNTS_OUT :: recvcounts, rdispls
    integer(c_int64_t), intent(in) :: recv_capacity
    integer(c_int), intent(in) :: count, datatype
    type(EPX_Comm), intent(in) :: comm
    type(EPX_Stream), intent(in) :: stream
    integer(c_int), intent(in) :: flags
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: from, from_counts, from_displs, to, to_counts, to_displs
    integer(c_int) :: error

    refused = ''
    from = address(sendbuf, 'sendbuf', refused)
    from_counts = address(sendcounts, 'sendcounts', refused)
    from_displs = address(sdispls, 'sdispls', refused)
    to = address(recvbuf, 'recvbuf', refused)
    to_counts = address(recvcounts, 'recvcounts', refused)
    to_displs = address(rdispls, 'rdispls', refused)
    error = refuse('EPX_Alltoallv_init', refused, comm%handle, c_null_ptr)
    if (error == EPX_SUCCESS) &
      error = c_alltoallv_init(from, from_counts, from_displs, to, to_counts, to_displs, &
                               recv_capacity, count, datatype, comm%handle, stream%handle, flags, &
                               request%handle)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Neighbor_alltoallv_init(sendbuf, sendcounts, sdispls, recvbuf, recvcounts, &
      rdispls, recv_capacity, count, datatype, graph, stream, flags, request, ierror)
    ANY_IN :: sendbuf
    COUNTS_IN :: sendcounts, sdispls
    ANY_OUT :: recvbuf
    COUNTS_OUT :: recvcounts, rdispls
    integer(c_int64_t), intent(in) :: recv_capacity
    integer(c_int), intent(in) :: count, datatype
    type(EPX_Graph), intent(in) :: graph
    type(EPX_Stream), intent(in) :: stream
    integer(c_int), intent(in) :: flags
    type(EPX_Request), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    character(len=NAME_LENGTH) :: refused
    type(c_ptr) :: from, from_counts, from_displs, to, to_counts, to_displs
    integer(c_int) :: error

    refused = ''
    from = address(sendbuf, 'sendbuf', refused)
    from_counts = address(sendcounts, 'sendcounts', refused)
    from_displs = address(sdispls, 'sdispls', refused)
    to = address(recvbuf, 'recvbuf', refused)
    to_counts = address(recvcounts, 'recvcounts', refused)
    to_displs = address(rdispls, 'rdispls', refused)
    error = refuse('EPX_Neighbor_alltoallv_init', refused, c_graph_comm(graph%handle), c_null_ptr)
    if (error == EPX_SUCCESS) &
      error = c_neighbor_alltoallv_init(from, from_counts, from_displs, to, to_counts, to_displs, &
                               recv_capacity, count, datatype, graph%handle, stream%handle, flags, &
                               request%handle)
    call report(error, ierror)
  end subroutine

  subroutine EPX_Start(request, ierror)
    type(EPX_Request), intent(inout) :: request
    integer(c_int), intent(out), optional :: ierror

    call report(c_start(request%handle), ierror)
  end subroutine

  subroutine EPX_Startall(n, requests, ierror)
    integer(c_int), intent(in) :: n
    type(EPX_Request), intent(inout) :: requests(*)
    integer(c_int), intent(out), optional :: ierror

    call report(c_startall(n, requests), ierror)
  end subroutine

  subroutine EPX_Request_free(request, ierror)
    type(EPX_Request), intent(inout) :: request
    integer(c_int), intent(out), optional :: ierror

    call report(c_request_free(request%handle), ierror)
  end subroutine

  ! Completion

  subroutine EPX_Wait(request, status, ierror)
    type(EPX_Request), intent(inout) :: request
    type(MPI_Status), optional, target :: status
    integer(c_int), intent(out), optional :: ierror
    type(outcome) :: completed
    integer(c_int) :: error

    error = c_wait(request%handle, completed)
    if (present(status)) then
      if (.not. same_status(status, MPI_STATUS_IGNORE)) call store_status(completed, status)
    end if
    call report(error, ierror)
  end subroutine

  subroutine EPX_Test(request, flag, status, ierror)
    type(EPX_Request), intent(inout) :: request
    logical, intent(out) :: flag
    type(MPI_Status), optional, target :: status
    integer(c_int), intent(out), optional :: ierror
    type(outcome) :: completed
    integer(c_int) :: error, complete

    complete = 0
    error = c_test(request%handle, complete, completed)
    flag = complete /= 0
    if (present(status)) then
      if (.not. same_status(status, MPI_STATUS_IGNORE)) call store_status(completed, status)
    end if
    call report(error, ierror)
  end subroutine

  subroutine EPX_Waitall(n, requests, statuses, ierror)
    integer(c_int), intent(in) :: n
    type(EPX_Request), intent(inout) :: requests(*)
    type(MPI_Status), optional, target :: statuses(*)
    integer(c_int), intent(out), optional :: ierror
    type(outcome), allocatable :: completed(:)
    integer(c_int) :: error
    integer :: i

    allocate (completed(max(n, 0)))
    error = c_waitall(n, requests, completed)
    if (present(statuses) .and. n > 0) then
      if (.not. same_status(statuses(1), MPI_STATUSES_IGNORE(1))) then
        do i = 1, n
          call store_status(completed(i), statuses(i))
        end do
      end if
    end if
    call report(error, ierror)
  end subroutine

  subroutine EPX_Wait_enqueue(request, stream, ierror)
    type(EPX_Request), intent(inout) :: request
    type(EPX_Stream), intent(in) :: stream
    integer(c_int), intent(out), optional :: ierror

    call report(c_wait_enqueue(request%handle, stream%handle), ierror)
  end subroutine

  ! Handles

  elemental logical function same_comm(a, b)
    type(EPX_Comm), intent(in) :: a, b

    same_comm = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_route(a, b)
    type(EPX_Route), intent(in) :: a, b

    same_route = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_request(a, b)
    type(EPX_Request), intent(in) :: a, b

    same_request = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_graph(a, b)
    type(EPX_Graph), intent(in) :: a, b

    same_graph = same_handle(a%handle, b%handle)
  end function

  elemental logical function same_stream(a, b)
    type(EPX_Stream), intent(in) :: a, b

    same_stream = same_handle(a%handle, b%handle)
  end function

  elemental logical function other_comm(a, b)
    type(EPX_Comm), intent(in) :: a, b

    other_comm = .not. same_comm(a, b)
  end function

  elemental logical function other_route(a, b)
    type(EPX_Route), intent(in) :: a, b

    other_route = .not. same_route(a, b)
  end function

  elemental logical function other_request(a, b)
    type(EPX_Request), intent(in) :: a, b

    other_request = .not. same_request(a, b)
  end function

  elemental logical function other_graph(a, b)
    type(EPX_Graph), intent(in) :: a, b

    other_graph = .not. same_graph(a, b)
  end function

  elemental logical function other_stream(a, b)
    type(EPX_Stream), intent(in) :: a, b

    other_stream = .not. same_stream(a, b)
  end function

  ! Two null pointers are the same, which c_associated denies.
  elemental logical function same_handle(a, b)
    type(c_ptr), intent(in) :: a, b

    same_handle = transfer(a, 0_c_intptr_t) == transfer(b, 0_c_intptr_t)
  end function

  ! What the subroutines share

  ! NULL for an argument that is absent; the name of the first one that has gaps is kept.
  type(c_ptr) function address(buffer, name, refused)
    ANY_IN, optional :: buffer
    character(len=*), intent(in) :: name
    character(len=*), intent(inout) :: refused

    address = c_null_ptr
    if (.not. present(buffer)) return
    if (.not. IN_ONE_PIECE(buffer) .and. refused == '') refused = name
    address = ADDRESS_OF(buffer)
  end function

  ! A null handle is for the call itself to refuse.
  integer(c_int) function refuse(function, refused, comm, route)
    character(len=*), intent(in) :: function, refused
    type(c_ptr), intent(in) :: comm, route

    refuse = EPX_SUCCESS
    if (refused /= '' .and. (c_associated(comm) .or. c_associated(route))) &
      refuse = c_refuse(function//c_null_char, trim(refused)//c_null_char, comm, route)
  end function

  subroutine report(error, ierror)
    integer(c_int), intent(in) :: error
    integer(c_int), intent(out), optional :: ierror

    if (present(ierror)) ierror = error
  end subroutine

  subroutine store_text(text, length, string, resultlen)
    character(kind=c_char), intent(in) :: text(*)
    integer(c_int), intent(in) :: length
    character(len=*), intent(out) :: string
    integer(c_int), intent(out) :: resultlen
    integer :: i

    string = ''
    resultlen = min(length, len(string, c_int))
    do i = 1, resultlen
      string(i:i) = text(i)
    end do
  end subroutine

  logical function same_status(a, b)
    type(MPI_Status), target, intent(in) :: a, b

    same_status = c_associated(c_loc(a), c_loc(b))
  end function

  subroutine store_status(completed, status)
    type(outcome), intent(in) :: completed
    type(MPI_Status) :: status

    if (completed%error < 0) return
    status%MPI_SOURCE = MPI_ANY_SOURCE
    status%MPI_TAG = MPI_ANY_TAG
    call MPI_Status_set_elements_x(status, MPI_BYTE, int(completed%rows, MPI_COUNT_KIND))
    call MPI_Status_set_cancelled(status, .false.)
    status%MPI_ERROR = completed%error
  end subroutine
end module epx_f08
