// Preloaded before the command `leasehold`. The command parses and checks its words as at a
// terminal. Where it would call the store or start another program, it ends with exit code 0.

const childProcess = require('node:child_process')
const clientModule = require('../../../dist/client/client.js')

const end = () => process.exit(0)
const { LockClient } = clientModule

class DryClient {
  static acquirerOf = end

  constructor(options) {
    // A real client, because it checks URLs and limits. It connects only at the first request.
    const real = new LockClient(options)
    // biome-ignore lint/correctness/noConstructorReturn: every method has to end the process
    return new Proxy(real, { get: (_, name) => (['on', 'close'].includes(name) ? () => {} : end) })
  }
}

clientModule.LockClient = DryClient
childProcess.spawn = end
process.stdin.isTTY = process.stderr.isTTY = true
