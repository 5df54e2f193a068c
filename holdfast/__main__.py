"""The command line `holdfast`; `python -m holdfast` is the same."""

from app.cli import main

if __name__ == "__main__":
    main()
