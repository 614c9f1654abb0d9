// Loads a package that only one entry of this library needs, and that users install themselves.

/**
 * Returns what `load` returns. If the package `name` is not installed, throws an error that says
 * what needs the package and how to install it. The `code` of the error is `MODULE_NOT_FOUND`, and
 * its `cause` is the error of Node.
 */
export function loadPeer<T>(name: string, entry: string, load: () => T): T {
  try {
    return load()
  } catch (error) {
    if (!isMissing(error, name)) throw error
    const message = `${entry} needs the package ${name}, which is not installed here: run \`npm install ${name}\``
    throw Object.assign(new Error(message, { cause: error }), { code: 'MODULE_NOT_FOUND' })
  }
}

/** Returns false if the package is installed, but a package that it needs is not. */
function isMissing(error: unknown, name: string): boolean {
  const { code, message } = error as NodeJS.ErrnoException
  return code === 'MODULE_NOT_FOUND' && String(message).split('\n', 1)[0]?.includes(`'${name}'`) === true
}
