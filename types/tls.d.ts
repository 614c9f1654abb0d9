// How to speak TLS with a store.

/**
 * Whom to trust over TLS, and who to be: as with Node's `tls.connect()`, the texts themselves (PEM), not the names of files.
 * A certificate, key or name that can't be used is a `TypeError` at once.
 *
 * The server's certificate is always verified, and must be made for the host in the URL: who could pretend to be the server
 * could grant every lock to everybody. If the certificate is of your own making, do not look for a way to switch that off,
 * give `ca`.
 */
export interface TlsOptions {
  /**
   * Certificates of the authorities to trust, instead of those that the system trusts (or those that the environment
   * variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name): one text may have many.
   */
  ca?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined
  /** The certificate to show to a server that wants one, and behind it those that lead to its authority. Needs `key`. */
  cert?: string | Uint8Array | undefined
  /** The private key of `cert`, not encrypted: PKCS#8, PKCS#1 or SEC1. It never appears in a message. */
  key?: string | Uint8Array | undefined
  /** The host name or IP address that the server's certificate must be made for. Default: the host in the URL. */
  servername?: string | undefined
  /** Not there: give `ca`. */
  rejectUnauthorized?: never
}
