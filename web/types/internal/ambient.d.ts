// What the package's own code is checked against, besides the DOM: workers have more.

interface FileSystemSyncAccessHandle {
    read(buffer: Uint8Array, options?: { at: number }): number;
    write(buffer: Uint8Array, options?: { at: number }): number;
    getSize(): number;
    flush(): void;
    close(): void;
}

interface FileSystemFileHandle {
    createSyncAccessHandle(options?: { mode: "readwrite" | "read-only" }): Promise<FileSystemSyncAccessHandle>;
}

interface SymbolConstructor {
    readonly asyncDispose: unique symbol;
}

/** What wasm-bindgen makes of `web/src`. */
declare module "wasm-module" {
    export default function init(options: { module_or_path: URL }): Promise<{ memory: WebAssembly.Memory }>;
    export const Device: any;
    export const Embedder: any;
    export const Generator: any;
    export const Sha256: any;
    export const modelKind: (config: string) => string;
}
