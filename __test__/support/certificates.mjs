// Certificates of a test's own, made by openssl, so that none is kept that runs out.

import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { temporaryFolder } from './servers.mjs'

/** An authority, and what it signs. The files are gone when the test is over. */
export function makeAuthority(t) {
  const folder = temporaryFolder(t)
  const at = (name) => join(folder, name)
  const openssl = (...words) => execFileSync('openssl', words, { stdio: ['ignore', 'pipe', 'pipe'] })
  const key = (name) => openssl('genpkey', '-algorithm', 'EC', '-pkeyopt', 'ec_paramgen_curve:P-256', '-out', at(name))

  key('ca.key')
  openssl(
    'req',
    '-x509',
    '-new',
    '-key',
    at('ca.key'),
    '-subj',
    `/CN=${randomUUID()}`,
    '-days',
    '2',
    '-out',
    at('ca.pem'),
  )

  return {
    ca: readFileSync(at('ca.pem')),
    caFile: at('ca.pem'),

    /** A certificate for `names` (`IP:127.0.0.1`, `DNS:host`), valid from now for so many days, or until so many ago. */
    sign(names, days = 2) {
      const id = randomUUID()
      const [keyFile, certFile] = [at(`${id}.key`), at(`${id}.pem`)]
      key(`${id}.key`)
      openssl('req', '-new', '-key', keyFile, '-subj', `/CN=${id}`, '-out', at(`${id}.csr`))
      writeFileSync(at(`${id}.ext`), `subjectAltName=${names.join(',')}\n`)
      const signing = ['-req', '-in', at(`${id}.csr`), '-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial']
      openssl('x509', ...signing, '-extfile', at(`${id}.ext`), '-days', `${days}`, '-out', certFile)
      return { cert: readFileSync(certFile), key: readFileSync(keyFile), certFile, keyFile }
    },
  }
}
