module github.com/pinfold/pinfold/tests/conformance/go

go 1.26.0

replace github.com/pinfold/pinfold/clients/go => ../../../clients/go
