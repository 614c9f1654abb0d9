// Hides the passwords of URLs in text of other code, such as an error that a user's work throws.
// Errors of this library have none.

/**
 * The most characters of a text that are looked at; the rest is left out. If this is larger, a huge
 * text takes longer; if it is smaller, more of a text is lost.
 */
const MOST = 20_000

/**
 * Matches the login of a URL, which may have a `/` in it. Leaves out `file:` URLs: they have no
 * login, and their path may have an `@`.
 */
const LOGIN = /\b(?!file:)([a-z][a-z0-9+.-]{0,30}:\/\/)\S{0,1000}@/gi
/** Matches a value in the query of a URL that may be a secret. */
const SECRET = /([?&](?:auth|pass|pwd|secret|token)\w{0,30}=)[^\s&]*/gi

/**
 * Matches the login of a URL in a key. In most URLs, an `@` behind the first `/`, `?` or `#`
 * belongs to no login. In the URL of a store, the password may have these characters without
 * being encoded, so the match ends at the last `@`. In the key of an id of once(), the first `@`
 * may be that of `@once:`, right behind a host. The id has `%40` for each `@`, so the match may
 * also end at a `%40`.
 */
const LOGIN_IN_KEY =
  /(?<=(?:redis|valkey|postgres)[a-z+-]*:\/\/).*(?:@|%40)|(?<=:\/\/)(?![^/?#:@]+@once:[^@{}]+$)[^/?#]*(?:@|%40)/gis

/** Returns a key, or another name that users choose, without the logins of URLs in it. */
export const keyWithoutLogins = (key: string): string =>
  // Without an @, the pattern would take a time that grows with the square of the length.
  /@|%40/.test(key) ? key.replace(LOGIN_IN_KEY, '…@') : key

export function withoutLogins(text: string): string {
  return text.slice(0, MOST).replace(LOGIN, '$1…@').replace(SECRET, '$1…')
}
