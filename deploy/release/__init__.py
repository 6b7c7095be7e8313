"""Makes a release: wheel, sources, pinned requirements of each role, bills of materials, sums and a signature.

It is not installed. `making` puts a release together, `locks` pins what a role needs, `bill` lists it, `archives`
builds wheel and sources, `signing` signs. The same commit, with the same hatchling and key, gives the same bytes.
"""
