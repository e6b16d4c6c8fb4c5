"""Does a file that claims local privacy leak?"""
