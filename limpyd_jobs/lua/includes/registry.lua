-- Registry: what processes that cannot import a class, or a model, have to know to find its records: see known_classes.py.

local function write_classes(rows)
  for _, row in ipairs(rows and cjson.decode(rows) or {}) do
    redis.pcall('HSET', 'limpyd-jobs:classes', row[1], row[2])
  end
end
