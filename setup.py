"""Where two files go that Python reads when it starts; the metadata is in setup.cfg."""

from setuptools import setup

from distutils.command.install_headers import install_headers  # isort: skip  # that of setuptools, which comes first


class BesideModules(install_headers):  # type: ignore[misc]
    """Puts the files beside the modules, where Python looks for them.

    Of all kinds of files of a distribution, headers are the one that can be led there, in an editable install, too.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        self.install_dir = self.get_finalized_command("install").install_lib


setup(cmdclass={"install_headers": BesideModules}, headers=["limpyd_jobs.pth", "limpyd_jobs.start"])
