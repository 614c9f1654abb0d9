// TLS for a store.

/**
 * Which certificates the client trusts, and which it presents. As with Node's `tls.connect()`,
 * these are the texts (PEM, up to 4 MiB each), not the names of files. A certificate, key or name
 * that can't be used is a `TypeError` at once.
 *
 * The client always verifies the server's certificate, which must be made for the host in the URL:
 * a false server could grant every lock to every client. You can't switch that off. If you made the
 * certificate yourself, pass `ca`.
 */
export interface TlsOptions {
  /**
   * The certificates of the authorities to trust, instead of those that the system trusts (or those
   * that the environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name). One text may contain
   * many.
   */
  ca?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined
  /**
   * The certificate for a server that asks for one, followed by those that lead to its authority.
   * Needs `key`.
   */
  cert?: string | Uint8Array | undefined
  /**
   * The private key of `cert`, not encrypted: PKCS#8, PKCS#1 or SEC1. It never appears in a
   * message.
   */
  key?: string | Uint8Array | undefined
  /**
   * The host name or IP address that the server's certificate must be made for: 1 to 255 bytes.
   * Default: the host in the URL.
   */
  servername?: string | undefined
  /** Not supported: pass `ca`. */
  rejectUnauthorized?: never
}
