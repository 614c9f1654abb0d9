// Whether a command is there, and can be run: asked before, because of what a shell then fails to run it only says the code.

import { accessSync, constants, statSync } from 'node:fs'
import { join } from 'node:path'

/** Why `file` can't be run, as the system says it, if it can't; looked up as execvp does. Not for Windows. */
export function whyNot(file: string, env: NodeJS.ProcessEnv): 'ENOENT' | 'EACCES' | undefined {
  if (file === '') return 'ENOENT'
  if (file.includes('/')) return whyNotAt(file)
  // Without a PATH each system has a default of its own.
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
