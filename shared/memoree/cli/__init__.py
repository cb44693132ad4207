"""The command line: `memoree call` for machines, readable commands for people, both over the same requests.

Every module here imports `click` and little else; what a command needs is imported when it runs, so that
`memoree --help` does not wait for a database.
"""
