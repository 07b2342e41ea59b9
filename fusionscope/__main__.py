"""``python -m fusionscope``."""

from fusionscope.cli.main import main

main()
