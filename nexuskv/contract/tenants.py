"""How a tenant is named in a certificate: whoever issues one and whoever reads one must agree.

Owns the spelling. Knows nothing of certificates.
"""

from typing import Final

TENANT_URI: Final = "nexuskv:tenant/"
"""A subject alternative name of the kind URI begins with it; the tenant's name follows."""
