"""dtrace -c 'python3 example.py' does not wait for probes that come later, so: run this, and in another terminal
dtrace -n 'myapp*:::request-start { printf("%d %s", args[0], copyinstr(arg1)); }'"""
import time
from dtrace_usdt import Provider

provider = Provider("myapp")
request = provider.probe("request-start", "int id, char *path")
provider.enable()
for n in range(1000):
    request(n, "/index.html")
    time.sleep(0.1)
