// Run this, and in another terminal
// dtrace -n 'myapp*:::request-start { printf("%d %s", args[0], copyinstr(arg1)); }'
const { Provider } = require('dtrace-usdt');
const provider = new Provider('myapp');
const request = provider.probe('request-start', 'int id, char *path');
provider.enable();
let n = 0;
setInterval(() => request.fire(n++, '/index.html'), 100);
