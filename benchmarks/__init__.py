"""How fast Pinfold is, against floors of the same run. See README.md."""
