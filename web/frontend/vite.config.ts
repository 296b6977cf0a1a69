import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const BACKEND = process.env["M3_BACKEND"] ?? "http://127.0.0.1:8000";

export default defineConfig({
  plugins: [react()],
  // No data: URIs and no inline scripts: the page runs under `default-src 'self'`.
  build: { assetsInlineLimit: 0, modulePreload: { polyfill: false }, target: "es2022" },
  server: {
    host: "127.0.0.1",
    port: 5173,
    strictPort: true,
    proxy: Object.fromEntries(["/chat", "/files", "/upload", "/health"].map((path) => [path, { target: BACKEND }])),
  },
  test: { include: ["tests/**/*.test.{ts,tsx}"], environment: "node", restoreMocks: true },
});
