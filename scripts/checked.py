# SPDX-License-Identifier: Apache-2.0
"""Runs a check script of this directory on files in a temporary directory, within this process: tests start it dozens of times."""

import contextlib
import functools
import io
import os
import pathlib
import subprocess
import sys
import tempfile
from unittest import mock

SCRIPTS = pathlib.Path(__file__).resolve().parent


def run(script, files, *arguments, is_repository=False):
    """Writes files and checks them: returns the exit code, the output and the errors. A text of None is not written."""
    path = SCRIPTS / script
    output, errors = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            file = pathlib.Path(directory, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                file.write_text(text, encoding="utf-8")
        if is_repository:
            subprocess.run(["git", "init", "--quiet", "--template=", directory], check=True, timeout=60)
        before = pathlib.Path.cwd()
        os.chdir(directory)
        try:
            with (
                mock.patch.object(sys, "argv", [str(path), *arguments]),
                contextlib.redirect_stdout(output),
                contextlib.redirect_stderr(errors),
            ):
                code = code_of(path)
        finally:
            os.chdir(before)
    return code, output.getvalue(), errors.getvalue()


@functools.cache
def program_of(path):
    return compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)


def code_of(path):
    """Runs a script as `python3 SCRIPT` does, with names of its own; returns its exit code."""
    try:
        exec(program_of(path), {"__name__": "__main__", "__file__": str(path)})
    except SystemExit as end:
        return end.code
    return 0
