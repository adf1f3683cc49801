"Independent readers of the controlled corpora: they must find the label and the words that decide it"
