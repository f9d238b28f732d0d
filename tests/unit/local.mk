# SPDX-License-Identifier: BSD-3-Clause
# Units of the library, in folders as src/ has them, and of the tests' support.
include tests/unit/support/local.mk
include tests/unit/base/local.mk
include tests/unit/core/local.mk
include tests/unit/kernels/local.mk
include tests/unit/transport/local.mk
include tests/unit/coll/local.mk
