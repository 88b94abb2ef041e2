(module name: (_) @name) @definition.module
(class name: (_) @name) @definition.class
(module (body_statement (method name: (_) @name) @definition.method))
(method name: (_) @name) @definition.function
(singleton_method name: (_) @name) @definition.method
(assignment left: (constant) @name right: (call receiver: (constant) @made method: (identifier) @new block: (_))
  (#match? @made "^(Struct|Class|Data|Module)$") (#match? @new "^(new|define)$")) @definition.class
(assignment left: (constant) @name) @definition.constant
