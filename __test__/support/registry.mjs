// An npm registry on loopback. It serves the packages that were published to it. For other
// packages, it redirects to the registry that npm is configured for. verdaccio does the same with
// some 300 packages.

import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { buffer } from 'node:stream/consumers'
import { atEnd } from './endings.mjs'

/**
 * Starts a registry. `upstream` is the address of the other registry. Packages whose names begin
 * with `ours` are never requested from it: if they were not published here, they do not exist, even
 * if the other registry has a package of that name.
 */
export async function startRegistry(t, { upstream, ours }) {
  const packages = new Map()
  const tarballs = new Map()

  function publish(name, versions, tags) {
    for (const manifest of Object.values(versions)) {
      const path = `/${name}/-/${name}-${manifest.version}.tgz`
      const integrity = `sha512-${createHash('sha512').update(tarballs.get(path)).digest('base64')}`
      manifest.dist = { ...manifest.dist, integrity, tarball: `${url}${path}` }
    }
    const known = packages.get(name)
    packages.set(name, {
      name,
      versions: { ...known?.versions, ...versions },
      'dist-tags': { ...known?.['dist-tags'], ...tags },
    })
  }

  /** Publishes the packages in the body of a request of `npm publish`. */
  async function receive(name, request) {
    const { versions, _attachments, 'dist-tags': tags } = JSON.parse(await buffer(request))
    for (const [file, { data }] of Object.entries(_attachments))
      tarballs.set(`/${name}/-/${file}`, Buffer.from(data, 'base64'))
    publish(name, versions, tags)
  }

  /** Publishes an empty archive as the package of `manifest`. */
  function add(manifest) {
    const { name, version } = manifest
    tarballs.set(`/${name}/-/${name}-${version}.tgz`, Buffer.alloc(0))
    publish(name, { [version]: manifest }, { latest: version })
  }

  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(request.url.split('?', 1)[0])
    const name = path.slice(1)
    // The registry of the next test may have this port, and other packages of the same name and
    // version.
    const answer = (status, type, body) =>
      response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' }).end(body)
    if (request.method === 'PUT') {
      await receive(name, request)
      answer(201, 'application/json', '{"ok":true}')
    } else if (packages.has(name)) answer(200, 'application/json', JSON.stringify(packages.get(name)))
    else if (tarballs.has(path)) answer(200, 'application/octet-stream', tarballs.get(path))
    else if (name.startsWith(ours)) answer(404, 'application/json', '{"error":"not found"}')
    else response.writeHead(302, { location: new URL(request.url.slice(1), upstream).href }).end()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${server.address().port}`
  atEnd(t, () => {
    server.closeAllConnections()
    return new Promise((resolve) => server.close(resolve))
  })
  return { url, add, names: () => [...packages.keys()] }
}
