// Checks the Dockerfile, the compose file and the README of examples/service. service.test.mjs
// starts the service.

import assert from 'node:assert/strict'
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import ts from 'typescript'
import { parse } from 'yaml'
import { pages, ROOT } from '../support/docs/page.mjs'
import { buildImage, mistakesIn } from '../support/image.mjs'
import { temporaryFolder } from '../support/servers.mjs'
import { readService, SERVICE } from '../support/service.mjs'

/** Returns the lines of a script, without types and comments. */
function plainLines(source) {
  const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, removeComments: true }
  const lines = ts.transpileModule(source, { compilerOptions }).outputText.split('\n')
  return lines.map((line) => line.trim()).filter((line) => line.length > 3 && line !== '"use strict";')
}

/**
 * Searches `all` for `lines` in this order, with other lines between them. Returns the first
 * missing line.
 */
function firstMissing(lines, all) {
  let from = 0
  return lines.find((line) => {
    const at = all.indexOf(line, from)
    from = at + 1
    return at < 0
  })
}

describe('the files of examples/service', () => {
  test('the Dockerfile parses, has two stages, and does not run as root', () => {
    const text = readService('Dockerfile')
    assert.deepEqual(mistakesIn(text), [])
    assert.equal(text.match(/^FROM /gm).length, 2)
    const [, last] = text.split(/^FROM .* AS build$/m)[1].split(/^FROM .*$/m)
    // Kubernetes needs a number to verify that the user is not root.
    assert.match(last, /^USER [1-9]\d*$/m)
    assert.match(last, /^CMD \["node", /m)
    assert.notDeepEqual(mistakesIn(text.replace('WORKDIR', 'WORKDIRS')), [], 'the check finds mistakes')
  })

  test('an image whose COPY has no source is not built', async (t) => {
    const folder = temporaryFolder(t)
    cpSync(join(SERVICE, 'Dockerfile'), join(folder, 'Dockerfile'))
    writeFileSync(join(folder, 'package.json'), '{}')
    await assert.rejects(buildImage(folder, join(folder, 'image')), /there is no leasehold-\*\.tgz/)
    writeFileSync(join(folder, 'leasehold-0.1.0.tgz'), '')
    writeFileSync(join(folder, '.dockerignore'), '*\n!package.json\n')
    await assert.rejects(buildImage(folder, join(folder, 'image')), /there is no leasehold-\*\.tgz/)
  })

  test('package.json names the tarball of npm pack', () => {
    const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
    const { dependencies } = JSON.parse(readService('package.json'))
    assert.equal(dependencies.leasehold, `file:leasehold-${version}.tgz`)
  })

  test('the compose file has two replicas, ports for both, and time for their shutdown', () => {
    const { services, volumes } = parse(readService('docker-compose.yml'))
    const { redis, service } = services
    assert.equal(service.build, '.')
    assert.equal(service.deploy.replicas, 2)
    const [, first, last, inside] = /^127\.0\.0\.1:(\d+)-(\d+):(\d+)$/.exec(service.ports[0])
    assert.equal(last - first + 1, service.deploy.replicas)
    assert.match(readService('Dockerfile'), new RegExp(`^EXPOSE ${inside}$`, 'm'))
    assert.deepEqual(service.depends_on, { redis: { condition: 'service_healthy' } })
    assert.ok(redis.healthcheck)
    assert.equal(new URL(service.environment.REDIS_URL).hostname, 'redis')
    // The server has a limit of 10 s. The default stopTimeout of a worker is 10 s, and the default
    // drain of a client is 8 s.
    assert.ok(Number.parseInt(service.stop_grace_period, 10) >= 10 + 10 + 8)
    assert.deepEqual([service.read_only, service.cap_drop], [true, ['ALL']])
    assert.deepEqual(
      redis.volumes,
      Object.keys(volumes).map((name) => `${name}:/data`),
    )
  })

  test('the service shuts down by the recipe of README and docs/servers.md', () => {
    const recipesOf = (page, mark) =>
      pages()
        .filter(({ name }) => name === page)
        .flatMap(({ blocks }) => blocks.filter(({ text }) => text.includes(mark)))
        .map(({ text }) => plainLines(text))
    // The README calls the functions of this file.
    const functions = plainLines(readFileSync(join(ROOT, 'examples/shared/close-server.mjs'), 'utf8'))
      .filter((line) => !/^(?:export|return) /.test(line))
      .map((line) => line.replace('}, limit)', '}, 10_000)'))
    const short = recipesOf('README.md', 'closeServer(').map((lines) => [
      ...functions,
      ...lines.filter((line) => !/collectSockets|closeServer/.test(line)),
    ])
    const recipes = [...short, ...recipesOf('docs/servers.md', 'closeIdleConnections')]
    assert.equal(recipes.length, 2)
    const own = plainLines(readService('src/shutdown.ts'))
    for (const recipe of recipes) {
      // The service also listens for SIGINT.
      const lines = recipe.filter((line) => !line.startsWith('process.once'))
      assert.ok(lines.length >= 9, lines.join('\n'))
      assert.equal(firstMissing(lines, own), undefined)
      assert.ok(firstMissing(lines.toReversed(), own), 'the check ignores the order')
    }
  })

  test('the README names every variable that the service reads, with its default', () => {
    const config = readService('src/config.ts')
    const read = [...config.matchAll(/\benv\.([A-Z_]+)|whole\('([A-Z_]+)'/g)].map(([, one, other]) => one ?? other)
    const rows = [...readService('README.md').matchAll(/^\| `([A-Z_]+)` *\| (.*?) *\|/gm)]
    assert.deepEqual(
      new Set(rows.map(([, name]) => name)),
      new Set([...read, 'OTEL_SERVICE_NAME'].filter((name) => name !== 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT')),
    )
    for (const [, name, shown] of rows) {
      const [, number] = new RegExp(`whole\\('${name}', ([\\d_]+)`).exec(config) ?? []
      if (number) assert.equal(shown, number.replaceAll('_', ''), name)
    }
  })
})
