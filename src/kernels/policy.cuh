/* SPDX-License-Identifier: BSD-3-Clause */
/* policy.cuh - checks that a template argument has the functions that its interface names. */
#ifndef EPX_KERNELS_POLICY_CUH
#define EPX_KERNELS_POLICY_CUH

#include <type_traits>

/* Behind the function comes the type of a pointer to it. */
#define EPX_HAS(Policy, function, ...)                                                             \
    static_assert(std::is_same<decltype(&Policy::function), __VA_ARGS__>::value,                   \
                  "want " #function "() in this " #Policy)

#endif
