// Serves a folder below /leasehold/, as GitHub Pages does.

import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { extname, join } from 'node:path'
import { atEnd } from './endings.mjs'

const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css',
  '.js': 'text/javascript',
  '.svg': 'image/svg+xml',
}

/** Serves `folder` until the test ends. Returns its URL. */
export async function serveSite(t, folder) {
  const server = createServer(async ({ url }, response) => {
    const [, path] = /^\/leasehold\/([^?]*)/.exec(url) ?? []
    try {
      const file = join(folder, decodeURIComponent(path || 'index.html'))
      const body = await readFile(file)
      response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream').end(body)
    } catch {
      response.writeHead(404).end()
    }
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  atEnd(t, () => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${server.address().port}/leasehold/`
}
