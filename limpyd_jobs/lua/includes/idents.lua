-- Idents: the names of jobs in lists and sets, such as 'myapp.jobs.MyJob:12'.

--@include records

-- Splits an ident, 'myapp.jobs.MyJob:12', into its class path and pk; nil if it is not an ident. None has more than
-- 64 kB: to look for a record by an entry of 100 MB would take seconds.
local function parse_ident(ident)
  if #ident > 65536 then return nil end
  return string.match(ident, '^([^:]+%.[^:.]+):([^:]+)$')
end

-- Whether the caller knows a class with limits: else it looks into no lanes.
local knows_limits = false

-- The models of the job classes that a caller knows, given as text with the class path and the model in each line: a
-- table that looks a path up only when it is used, as most are not. The text begins with a line that is empty unless one of
-- them has limits.
local function classes_from(text)
  knows_limits = string.sub(text, 1, 1) ~= '\n'
  return setmetatable({}, {__index = function(classes, path)
    local _, before = string.find(text, '\n' .. path .. ' ', 1, true)
    classes[path] = before and string.sub(text, before + 1, string.find(text, '\n', before, true) - 1) or false
    return classes[path]
  end})
end

local function job_of(model, ident)
  local _, pk = parse_ident(ident)
  model = model_of(model)
  return {model = model, pk = pk, ident = ident, key = hash_key(model, pk)}
end
