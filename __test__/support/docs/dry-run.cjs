// Required before the command `leasehold`, as a person at a terminal would use it: it takes its words apart and checks them, and
// where it would first ask the store, or start another program, it ends with exit code 0.

const childProcess = require('node:child_process')
const { LockClient } = require('../../../dist/client.js')
const library = require('../../../dist/index.js')

const end = () => process.exit(0)
const { createLockClient } = library
const createDryClient = (options) =>
  // A real one, because it is what knows URLs and limits. It connects when it is first asked.
  new Proxy(createLockClient(options), { get: (_, name) => (['on', 'close'].includes(name) ? () => {} : end) })

require.cache[require.resolve('../../../dist/index.js')].exports = { ...library, createLockClient: createDryClient }
LockClient.acquirerOf = end
childProcess.spawn = end
process.stdin.isTTY = process.stderr.isTTY = true
