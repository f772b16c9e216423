"""Hosts on the nodes of a Ray cluster: started where there is none, and listed for bots.

Ray starts hosts and says where they are. It owns no kernel, carries nothing that code shows, and is
unknown to bots: they read a table, and go on with what it says while Ray is away. Only
`commands.fleet` imports this package, and only this package imports Ray.
"""
