[Cenote]
title=Cenote: shares
description=SMB3 over TCP and SMB Direct
ports=445,5445/tcp

[Cenote cluster]
title=Cenote: servers of a cluster among each other
description=Heartbeats, the cluster's port and etcd
ports=9447|9448:9449/tcp

[Cenote API]
title=Cenote: API from other machines
description=Management over TLS (api.tls_listen)
ports=9446/tcp
