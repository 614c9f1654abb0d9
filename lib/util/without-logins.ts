// Hides the passwords of URLs in names that users choose, and in text of other code, such as an
// error that a user's work throws. Errors of this library have no passwords.

/**
 * The most characters of a text that are looked at; the rest is left out. If this is larger, a huge
 * text takes longer; if it is smaller, more of a text is lost.
 */
const MOST = 20_000

/**
 * Matches the login of a URL in a word, which may have a `/` in it. Leaves out `file:///`: the path
 * may have an `@`.
 */
const LOGIN = /(?<=:\/\/)(?<!(?<![\w+.-])file:\/\/(?=\/)).*@/is
/**
 * Matches the login of a URL in a line, with blanks in the password. A port, as in
 * `redis://host:6379`, begins no password.
 */
const LOGIN_WITH_BLANKS = /(?<=:\/\/)(?::|[^\s:/?#@[]+:(?!\d{1,5}(?!\w)))[^@]*@(?:\S*@)?/g

/** Matches the name of a value in the query of a URL, or in its fragment. */
const NAME = /[?&;#]([\w.[\]%-]+)=/g
/** Match such a value in a text, where it has no blank, and in a key, where it may have blanks. */
const [VALUE_IN_TEXT, VALUE_IN_KEY] = [/[^\s&]*/y, /[^&]*/y]
/** Matches the name of a value that may be a secret. */
const SECRET =
  /auth(?!ors?$)|pass|pwd|secret|token|credential|signature|^(?:pw|sig|key)$|(?:api|access|private)[_.-]?key/i

/**
 * Matches the login of a URL in a key. In most URLs, an `@` behind the first `/`, `?` or `#`
 * belongs to no login. In the URL of a store, and in a URL with a password in place of a port, the
 * password may have these characters without being encoded, so the match ends at the last `@`. In
 * the key of an id of once(), the first `@` may be that of `@once:`, right behind a host. The id
 * has `%40` for each `@`, so the match may also end at a `%40`.
 */
const LOGIN_IN_KEY =
  /(?<=(?:redis|valkey|postgres)[a-z+-]*:\/\/).*(?:@|%40)|(?<=:\/\/)(?::.*|(?![^/?#:@]+@once:$)[^/?#]*|[^/?#:@[]+:(?!\d+[/?#]).*)(?:@|%40)/gis
/** Matches the id of once() at the end of its key. */
const ID = /(?<=@once:)[^@{}]+$/
/**
 * Matches the part of a name that may have a login. Behind this part, a search for the end of a
 * login would fail at each `://`, in a time that grows with the square of the length.
 */
const UNTIL_AT = /^.*(?:@once:$|@|%40)/s

/** Returns a key, or another name that users choose, without the logins of URLs in it. */
export function keyWithoutLogins(key: string): string {
  const [id = ''] = ID.exec(key) ?? []
  return nameWithoutLogins(key.slice(0, key.length - id.length)) + nameWithoutLogins(id)
}

function nameWithoutLogins(name: string): string {
  const [head = ''] = UNTIL_AT.exec(name) ?? []
  return head.replace(LOGIN_IN_KEY, '…@') + name.slice(head.length)
}

/** Returns a key as {@link keyWithoutLogins} does, also without the secrets in queries of URLs. */
export const keyWithoutSecrets = (key: string): string => withoutSecrets(keyWithoutLogins(key), VALUE_IN_KEY)

/** Returns a text of other code without the logins of URLs, and the secrets in their queries. */
export function withoutLogins(text: string): string {
  if (text.length <= MOST) return wholeWithoutLogins(text)
  // The text may be cut inside a login, which matches only with an `@` behind it.
  return wholeWithoutLogins(`${text.slice(0, MOST)}@`).replace(/@$/, '')
}

function wholeWithoutLogins(text: string): string {
  const hidden = text
    .replace(/\S+/g, (word) => hideUntilAt(word, LOGIN))
    .replace(/.+/g, (line) => hideUntilAt(line, LOGIN_WITH_BLANKS))
  return withoutSecrets(hidden, VALUE_IN_TEXT)
}

/** Hides matches up to the last `@` only. See {@link UNTIL_AT} for the reason. */
function hideUntilAt(text: string, pattern: RegExp): string {
  const end = text.lastIndexOf('@') + 1
  return text.slice(0, end).replace(pattern, '…@') + text.slice(end)
}

/** Hides what `value` matches behind each name of a secret. */
function withoutSecrets(text: string, value: RegExp): string {
  let [shown, end] = ['', 0]
  for (const { 0: match, 1: name = '', index } of text.matchAll(NAME)) {
    // A value that is no secret may have the next name in it.
    if (index < end || !SECRET.test(name)) continue
    shown += `${text.slice(end, index)}${match}…`
    value.lastIndex = index + match.length
    value.exec(text)
    end = value.lastIndex
  }
  return shown + text.slice(end)
}
