import { vitePlugin as remix } from '@remix-run/dev'
import { defineConfig } from 'vite'

export default defineConfig({
  plugins: [
    remix({
      future: {
        v3_fetcherPersist: true,
        v3_lazyRouteDiscovery: true,
        v3_relativeSplatPath: true,
        v3_singleFetch: true,
        v3_throwAbortReason: true,
      },
    }),
  ],
  // Native code can't be bundled. A process should also have only one copy of leasehold, that of
  // the server.
  ssr: { external: ['leasehold'] },
  // Vite would prepare these packages for the browser, which never loads them.
  optimizeDeps: { exclude: ['@remix-run/node', 'leasehold'] },
  // The style of the page is shared with the Express example.
  server: { fs: { allow: ['..'] } },
  // Several servers run in this folder at a time.
  cacheDir: `node_modules/.vite-${process.env.PORT ?? 3000}`,
})
