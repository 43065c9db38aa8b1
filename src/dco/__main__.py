"""``python -m dco`` is the command line."""

from dco.cli.main import main

if __name__ == "__main__":
    main()
