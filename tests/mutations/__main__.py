from .score import main

main()
