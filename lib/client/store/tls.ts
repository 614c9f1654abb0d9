// The option `tls`: checks that it has texts. Native code reads these. See types/tls.d.ts for their
// meaning.

import type * as api from '../../../index'
import type { TlsConfig } from '../../native/addon'
import { badType, badValue, checkText, copyOf, readOptions } from '../../util/arguments'

const TLS_OPTIONS = ['ca', 'cert', 'key', 'servername'] as const satisfies (keyof api.TlsOptions)[]

/** The options, and one that Node takes and leasehold refuses. */
type Given = api.TlsOptions & { rejectUnauthorized?: unknown }

/** The longest PEM text, in bytes. A bundle of all public authorities has about 250 000. */
const MAX_PEM = 4_194_304

export function parseTls(given: unknown): TlsConfig {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw badType('tls', 'an object, such as { ca: … }; for TLS alone write rediss:// and leave it out', given)
  }
  const { rejectUnauthorized, ...others } = readOptions<Given>(given, [...TLS_OPTIONS, 'rejectUnauthorized'])
  if (rejectUnauthorized !== undefined) {
    throw badValue(
      'The option "tls.rejectUnauthorized" is not there: the server\'s certificate is always verified. ' +
        'If it is of your own making, give the certificate of the authority that signed it as "tls.ca"',
    )
  }
  const { ca = [], cert, key, servername } = others
  const config: TlsConfig = Object.create(null)
  config.ca = Array.isArray(ca) ? copyOf(ca).map((one, i) => pem(`tls.ca[${i}]`, one)) : [pem('tls.ca', ca)]
  if (others.ca !== undefined && config.ca.length === 0) {
    throw badValue(
      'The "tls.ca" argument must not be an empty array: leave it out to trust the authorities of the system',
    )
  }
  if (cert !== undefined) config.cert = pem('tls.cert', cert)
  if (key !== undefined) config.key = pem('tls.key', key)
  if (servername !== undefined) {
    checkText('tls.servername', servername, 1, 255)
    config.servername = servername
  }
  return config
}

function pem(name: string, given: unknown): string {
  if (typeof given !== 'string' && !(given instanceof Uint8Array)) {
    throw badType(name, 'of type string, or a Buffer', given)
  }
  const text = typeof given === 'string' ? given : Buffer.from(given).toString('latin1')
  checkText(name, text, 1, MAX_PEM)
  return text
}
