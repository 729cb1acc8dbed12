from pinfoldd.daemon import main

main()
