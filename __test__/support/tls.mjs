// Certificates for servers and clients of a test, made by the `openssl` command. They are new, and
// expire soon.

import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const openssl = (...words) => execFileSync('openssl', words, { stdio: ['ignore', 'ignore', 'pipe'] })
const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']

/**
 * Creates a certificate authority in `folder`, with a unique name unless `called` gives one.
 * `issue(name, { names, days })` writes NAME.pem and NAME.key, and returns their paths. A
 * certificate of -1 days has expired.
 */
export function createAuthority(folder, { called = `leasehold test ${randomUUID()}` } = {}) {
  const ca = join(folder, 'ca.pem')
  const caKey = join(folder, 'ca.key')
  openssl('req', '-x509', ...KEY, '-keyout', caKey, '-out', ca, '-days', '2', '-subj', `/CN=${called}`)
  return {
    ca,
    issue(name, { names = 'IP:127.0.0.1,DNS:localhost', days = 2 } = {}) {
      const [cert, key, request, wish] = ['pem', 'key', 'csr', 'ext'].map((end) => join(folder, `${name}.${end}`))
      writeFileSync(wish, `subjectAltName=${names}\n`)
      openssl('req', ...KEY, '-keyout', key, '-out', request, '-subj', `/CN=${name}`)
      const signed = ['-CA', ca, '-CAkey', caKey, '-CAcreateserial', '-days', String(days), '-extfile', wish]
      openssl('x509', '-req', '-in', request, '-out', cert, ...signed)
      return { ca, cert, key }
    },
  }
}

/**
 * Returns the arguments of Redis for `{ ca, cert, key }`. `clients` says whether it requires
 * certificates of clients: 'yes', 'no' or 'optional'.
 */
export const tlsWords = ({ ca, cert, key, clients = 'no' }) =>
  ['--tls-cert-file', cert, '--tls-key-file', key, '--tls-ca-cert-file', ca].concat('--tls-auth-clients', clients)

/**
 * Returns the TLS options of Node and leasehold, with the contents of the files. The server's own
 * certificate can also be the client's.
 */
export const tlsOptions = ({ ca, cert, key }) => ({
  ca: readFileSync(ca),
  cert: readFileSync(cert),
  key: readFileSync(key),
})
