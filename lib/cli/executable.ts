// Checks whether a command can be run. If the gate, a shell, fails to run it, leasehold would only
// get an exit code.

import { accessSync, constants, statSync } from 'node:fs'
import { join } from 'node:path'

/**
 * Returns the system's error code if `file` can't be run. Looks `file` up as execvp does. Not for
 * Windows.
 */
export function whyNot(file: string, env: NodeJS.ProcessEnv): 'ENOENT' | 'EACCES' | undefined {
  if (file === '') return 'ENOENT'
  if (file.includes('/')) return whyNotAt(file)
  // Without a PATH, each system has a default of its own.
  if (env.PATH === undefined) return undefined
  const all = env.PATH.split(':').map((folder) => whyNotAt(join(folder || '.', file)))
  if (all.includes(undefined)) return undefined
  return all.includes('EACCES') ? 'EACCES' : 'ENOENT'
}

function whyNotAt(path: string): 'ENOENT' | 'EACCES' | undefined {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile() ? undefined : 'EACCES'
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EACCES' ? 'EACCES' : 'ENOENT'
  }
}
