from pinfold.cli.main import main

main()
