"""What has to be true before a release is published, found out by doing it.

    PYTHONPATH=tools python -m release_check --python 3.12 --python 3.13

`packages` judges what is in wheel and sdist; `environments` installs the wheel where nothing else is, and runs what a
user would; `report` writes down sizes, dependencies and times. Nothing is published.
"""
