# SPDX-License-Identifier: BSD-3-Clause
"""EPX for Spack 1.0 or later; builds the clone of EPX that this file lies in."""

import os

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *

CLONE = os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 6))


class Epx(AutotoolsPackage, CudaPackage):
    """Expert parallelism for mixture-of-experts models as MPI-style nonblocking collectives, on
    host memory and on the memory of GPUs."""

    git = "file://" + CLONE

    license("BSD-3-Clause")

    version("main", branch="main")

    variant("ucx", default=True, description="Messages between nodes by UCX")
    variant("nccl", default=True, when="+cuda", description="Rows between GPUs by NCCL")
    variant("fortran", default=True, description="An MPI with mpi_f08, for the module epx_f08")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("autoconf@2.69:", type="build")
    depends_on("automake@1.14:", type="build")
    depends_on("libtool", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("check", type="test")
    depends_on("mpi@3.1:")
    depends_on("openmpi+fortran", when="+fortran ^[virtuals=mpi] openmpi")
    depends_on("mpich+fortran", when="+fortran ^[virtuals=mpi] mpich")
    depends_on("ucx@1.13:", when="+ucx")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl@2.28:", when="+nccl")

    conflicts("cuda_arch=none", when="+cuda", msg="EPX on GPUs: cuda_arch=90 or later")

    def autoreconf(self, spec, prefix):
        Executable("./autogen.sh")()

    def configure_args(self):
        spec = self.spec
        args = ["MPICC=" + spec["mpi"].mpicc]
        args.append("MPIFC=" + (spec["mpi"].mpifc if spec.satisfies("+fortran") else "false"))
        for name in ("cuda", "nccl", "ucx"):
            if spec.satisfies("+" + name):
                args.append(f"--with-{name}={spec[name].prefix}")
            else:
                args.append(f"--without-{name}")
        if spec.satisfies("+cuda"):
            archs = spec.variants["cuda_arch"].value
            args.append("NVCC_GENCODE=" + " ".join(self.cuda_flags(archs)))
        return args

    def check(self):
        make("check-brief")
