# SPDX-License-Identifier: BSD-3-Clause
"""Usage: check_recipe.py CONFIGURE. Runs the recipe without Spack, by stand-ins for what it
imports, and expects that configure knows every argument that the recipe gives for any variants."""

import itertools
import os
import re
import runpy
import subprocess
import sys
import types

RECIPE = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "spack_repo/epx/packages/epx/package.py")
DIRECTIVES = ["license", "version", "variant", "depends_on", "conflicts"]
called = {name: [] for name in DIRECTIVES}


class Dependency:
    mpicc, mpifc = "/mpi/bin/mpicc", "/mpi/bin/mpifort"

    def __init__(self, name):
        self.prefix = "/" + name


class Spec:
    """What Spack calls a spec: here a set of variants that are on."""

    def __init__(self, variants):
        self.on = variants
        self.variants = {"cuda_arch": types.SimpleNamespace(value=("90",))}

    def satisfies(self, condition):
        return condition.removeprefix("+") in self.on

    def __getitem__(self, name):
        if name != "mpi" and name not in self.on:
            raise KeyError(f"the recipe reads {name}, which the spec does not have")
        return Dependency(name)


class Package:
    def cuda_flags(self, archs):
        return [f"-gencode arch=compute_{arch},code=sm_{arch}" for arch in archs]


def stand_in(name, **members):
    module = sys.modules[name] = types.ModuleType(name)
    vars(module).update(members)


def recorder(name):
    return lambda *args, **options: called[name].append((args, options))


def load():
    for name in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        stand_in(name)
    systems = "spack_repo.builtin.build_systems."
    stand_in(systems + "autotools", AutotoolsPackage=type("AutotoolsPackage", (Package,), {}))
    stand_in(systems + "cuda", CudaPackage=type("CudaPackage", (Package,), {}))
    stand_in("spack.package", **{name: recorder(name) for name in DIRECTIVES})
    return runpy.run_path(RECIPE)["Epx"]


def known_to(configure):
    text = subprocess.run(["sh", configure, "--help"], check=True, capture_output=True,
                          text=True).stdout
    options = set(re.findall(r"^  --with-([a-z]+)", text, re.MULTILINE))
    return options, set(re.findall(r"^  ([A-Z_]+)\b", text, re.MULTILINE))


def is_known(argument, options, variables):
    option = re.match(r"--with(?:out)?-([a-z]+)", argument)
    if option:
        return option[1] in options
    return argument.split("=")[0] in variables


def main():
    package = load()
    options, variables = known_to(sys.argv[1])
    names = {args[0] for args, _ in called["variant"]} | {"cuda"}
    missing = {"cuda", "ucx", "fortran"} - names
    if missing:
        sys.exit(f"check_recipe: the recipe has no variant {missing}")
    for number in range(len(names) + 1):
        for on in itertools.combinations(sorted(names), number):
            if "nccl" in on and "cuda" not in on:
                continue
            epx = package()
            epx.spec = Spec(set(on))
            for argument in epx.configure_args():
                if not is_known(argument, options, variables):
                    sys.exit(f"check_recipe: configure does not know {argument}")
    print(f"check_recipe: variants {', '.join(sorted(names))} give arguments that configure knows")


main()
