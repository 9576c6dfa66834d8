// The mock has no worker; the site looks for this file as a part of the package.
