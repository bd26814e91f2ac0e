"""python -m beam_dpcount.rows: where the provider file for Beam YAML is."""

from importlib.resources import files

if __name__ == "__main__":
    print(files("beam_dpcount.rows") / "provider.yaml")
