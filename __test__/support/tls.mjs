// Certificates for servers and clients of a test, made by the `openssl` command: they are young, and expire soon.

import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const openssl = (...words) => execFileSync('openssl', words, { stdio: ['ignore', 'ignore', 'pipe'] })
const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']

/** An authority of its own in `folder`: `issue(name, { names, days })` writes NAME.pem and NAME.key, and returns their paths. */
export function createAuthority(folder) {
  const ca = join(folder, 'ca.pem')
  const caKey = join(folder, 'ca.key')
  openssl('req', '-x509', ...KEY, '-keyout', caKey, '-out', ca, '-days', '2', '-subj', '/CN=leasehold test authority')
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

/** How Redis is told of `{ ca, cert, key }`; `clients` says whether it wants certificates: 'yes', 'no' or 'optional'. */
export const tlsWords = ({ ca, cert, key, clients = 'no' }) =>
  ['--tls-cert-file', cert, '--tls-key-file', key, '--tls-ca-cert-file', ca].concat('--tls-auth-clients', clients)

/** How Node is told of it: the server's own certificate serves as the client's. */
export const tlsOptions = ({ ca, cert, key }) => ({
  ca: readFileSync(ca),
  cert: readFileSync(cert),
  key: readFileSync(key),
})
