! SPDX-License-Identifier: BSD-3-Clause
! The program of first.c in Fortran: each rank sends 4 tokens to 2 of 8 experts; expert e multiplies
! by e; the weighted sums return.
program first_f08
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use epx_f08
  implicit none
  integer(c_int64_t) :: ids(2, 4) = reshape([0, 5, 3, 6, 7, 1, 2, -1], [2, 4])
  real(c_float) :: weights(2, 4) = reshape([.25, .75, .5, .5, .5, .5, 1., 0.], [2, 4])
  real(c_float) :: tokens(2, 4) = reshape([1., 10., 2., 20., 3., 30., 4., 40.], [2, 4])
  real(c_float), asynchronous :: sums(2, 4)
  real(c_float), pointer, asynchronous :: rows(:, :), row_weights(:)
  integer(c_int32_t), pointer :: counts(:)
  integer(c_int64_t), pointer :: offsets(:)
  type(EPX_Comm) :: comm
  type(EPX_Route) :: route
  type(EPX_Route_attr) :: attr
  type(EPX_Route_view) :: view
  type(EPX_Request) :: requests(2)
  type(c_ptr) :: row_memory, weight_memory
  integer :: e, t, first, last

  call MPI_Init()
  call EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, comm)
  attr%num_experts = 8
  attr%top_k = 2
  attr%max_tokens = 4
  call EPX_Route_create(attr, comm, route)
  call EPX_Route_get_view(route, view)
  call EPX_Alloc_mem(view%capacity*2*c_sizeof(sums(1, 1)), comm, row_memory)
  call EPX_Alloc_mem(view%capacity*c_sizeof(sums(1, 1)), comm, weight_memory)
  call c_f_pointer(row_memory, rows, [2_c_int64_t, view%capacity])
  call c_f_pointer(weight_memory, row_weights, [view%capacity])

  call EPX_Route_tokens(ids, 4, route, EPX_STREAM_NULL, requests(1))
  call EPX_Dispatch(tokens, weights, rows, row_weights, 2, EPX_FLOAT32, route, EPX_STREAM_NULL, &
                    requests(2))
  call EPX_Waitall(2, requests, MPI_STATUSES_IGNORE)
  call c_f_pointer(view%expert_counts, counts, [view%num_local_experts])
  call c_f_pointer(view%expert_offsets, offsets, [view%num_local_experts + 1])
  do e = 1, view%num_local_experts
    first = int(offsets(e)) + 1
    last = int(offsets(e)) + counts(e)
    rows(:, first:last) = rows(:, first:last)*real(view%first_local_expert + e - 1)
  end do
  call EPX_Combine(rows, row_weights, sums, 2, EPX_FLOAT32, route, EPX_STREAM_NULL, requests(1))
  call EPX_Wait(requests(1), MPI_STATUS_IGNORE)
  do t = 1, 4
    print '(a,i0,a,f0.2,1x,f0.2)', 'token ', t - 1, ': ', sums(:, t)
  end do

  call EPX_Free_mem(weight_memory, comm)
  call EPX_Free_mem(row_memory, comm)
  call EPX_Route_free(route)
  call EPX_Comm_free(comm)
  call MPI_Finalize()
end program
