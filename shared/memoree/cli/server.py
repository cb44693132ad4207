import click

serve = up = down = status = worker = click.Command("x")
