"""HDF5, netCDF and zarr files: damaged, in another format, or without what is asked of them."""

from __future__ import annotations

from torch_doctor.diagnose.cause import VAGUE, Cause, Signature, register
from torch_doctor.diagnose.words import WORKER
from torch_doctor.model import Remediation

register(
    Cause(
        "HDF235",
        "hdf5-filter-plugin-missing",
        "The data is compressed with a filter that this HDF5 does not have.",
        "blosc, lz4, zstd and bitshuffle are plugins; the file was written where they are installed.",
        "the data set is compressed with a filter that is not installed here ({what})",
        Remediation(
            "Install the filter plugins and import them before the file is read",
            (
                "pip install hdf5plugin",
                "import hdf5plugin, h5py  # for zarr: import imagecodecs.numcodecs; imagecodecs.numcodecs.register_codecs()",
                "h5dump -pH FILE | grep -A3 FILTER",
            ),
        ),
        (
            Signature(
                "required filter",
                "OSError: Can't synchronously read data (required filter 'blosc' is not registered)",
                "filter registered",
                r"(?P<what>required filter '[^']*' is not registered)",
                source="h5py 2.10 to 3.16, HDF5 1.10 to 2.0",
            ),
            Signature(
                "codec not available",
                "ValueError: codec not available: 'imagecodecs_jpegxl'",
                "codec is available",
                r"(?P<what>codec not available: '[^']*')",
                source="numcodecs 0.6 to 0.16, zarr",
            ),
            Signature(
                "can't open directory",
                "OSError: Can't read data (can't open directory: /usr/local/hdf5/lib/plugin)",
                "can't open directory /data",
                r"\(can't open directory:? ?\(?(?P<what>[^)\n]*plugin[^)\n]*)\)",
                source="h5py 2.10 to 3.16",
            ),
        ),
    ),
    Cause(
        "HDF236",
        "hdf5-object-not-in-file",
        "The file has no data set or group of that name.",
        "Another version of the file, another spelling, or a file that was written only in part.",
        "the HDF5 file has no object of that name ({what})",
        Remediation(
            "List what it holds",
            (
                "h5ls -r FILE",
                "python -c \"import h5py; h5py.File('FILE').visit(print)\"",
            ),
        ),
        (
            Signature(
                "open object (",
                "KeyError: \"Unable to synchronously open object (object 'labels' doesn't exist)\"",
                "table doesn't exist",
                r"Unable to (?:synchronously )?open object \((?P<what>(?:object|component|symbol)[^)]*(?:doesn't exist|not found))\)",
                source="h5py 2.10 to 3.16",
            ),
        ),
    ),
    Cause(
        "HDF207",
        "hdf5-file-truncated",
        "The HDF5 file is shorter than its header says, or is none.",
        "A download or copy was cut, or the writer died before it closed the file.",
        "the HDF5 file is cut short or is no HDF5 file ({text})",
        Remediation(
            "Compare its size and checksum with the source and copy it again",
            ("ls -l FILE; sha256sum FILE", "h5ls FILE", "file FILE"),
        ),
        (
            Signature(
                "truncated file",
                "OSError: Unable to open file (truncated file: eof = 96, sblock->base_addr = 0, stored_eof = 2048)",
                "truncated log",
                r"(?P<text>truncated file: eof = \d+[^)]*)",
                source="h5py 2.10 to 3.16",
            ),
            Signature(
                "inflate() failed",
                "OSError: Can't read data (inflate() failed)",
                "OSError: Caught OSError in DataLoader worker process 3.\nOSError: Can't read data (inflate() "
                "failed)",
                r"Can't (?:synchronously )?read data \((?P<text>inflate\(\) failed)",
                unless=(WORKER,),
                source="h5py 2.10 to 3.16: a file that is really damaged",
            ),
            Signature(
                ("file signature not found", "bad superblock"),
                "OSError: Unable to synchronously open file (file signature not found)",
                "signature not found",
                r"Unable to (?:synchronously )?open file \((?P<text>file signature not found|bad superblock "
                r"version number[^)]*)\)",
                source="h5py 2.10 to 3.16",
            ),
        ),
    ),
    Cause(
        "HDF241",
        "netcdf-file-unreadable",
        "netCDF could not read its file.",
        "The one text of the HDF5 layer stands for a file that is cut short, a lock of another process or of NFS, and a "
        "file that several threads read at once.",
        "netCDF could not read its file ({text}): it is cut short or no netCDF file, locked by another process or by "
        "NFS, or read by several threads at once",
        Remediation(
            "Read its header alone; compare its size with the source; for data that is only read, switch locking off; "
            "under dask use one thread per process",
            (
                "ncdump -h FILE; ls -l FILE",
                "export HDF5_USE_FILE_LOCKING=FALSE",
                "dask.config.set(scheduler='synchronous')",
            ),
        ),
        (
            Signature(
                "NetCDF: ",
                "RuntimeError: NetCDF: HDF error",
                "NetCDF: HDF error rate",
                r"(?P<text>NetCDF: (?:HDF error|Unknown file format))\b(?! rate)",
                unless=(WORKER,),
                source="netCDF4 1.5 to 1.7, xarray",
            ),
            Signature(
                "NetCDF: Unknown file format",
                "OSError: [Errno -51] NetCDF: Unknown file format: '/data/era5_2019.nc'",
                "NetCDF: known file format",
                r"(?P<text>NetCDF: Unknown file format)",
                source="netCDF4 1.5 to 1.7: cut short, an error page, or GRIB and others",
            ),
        ),
        kind=VAGUE,
        decide="ncdump -h FILE",
    ),
    Cause(
        "HDF243",
        "hdf5-versions-mixed",
        "Two versions of HDF5 are loaded into one process.",
        "h5py from pip and PyTables, netCDF4 or a system library from elsewhere bring one each; HDF5 aborts when headers and library differ.",
        "two versions of HDF5 are mixed[[ (built with {headers}, loaded {library})]], and HDF5 aborts",
        Remediation(
            "Take h5py and what else uses HDF5 (netCDF4, tables) from one source, and keep system libraries out of LD_LIBRARY_PATH",
            (
                "pip install --force-reinstall --no-deps --no-cache-dir h5py netCDF4 tables",
                "conda install -c conda-forge h5py netcdf4 pytables",
                'python -c "import h5py; print(h5py.version.info)"; unset LD_LIBRARY_PATH',
            ),
        ),
        (
            Signature(
                "HDF5 library version mismatched error",
                "Warning! ***HDF5 library version mismatched error***\nThe HDF5 header files used to compile this application do not match\nHeaders are 1.12.1, library is 1.10.7",
                "HDF5 library version 1.12.1",
                r"HDF5 library version mismatched error(?:(?:.*\n){1,12}?[^\n]*Headers are (?P<headers>[\d.]+), library is (?P<library>[\d.]+))?",
                source="HDF5 1.8 to 2.0",
            ),
        ),
        explains=("SES21", "SES22"),
    ),
    Cause(
        "HDF244",
        "hdf5-name-exists",
        "An HDF5 file, data set or group of that name is there already.",
        "create_dataset and mode 'x' or 'w-' refuse what exists; a second run writes into the first one's file.",
        "an HDF5 file or data set of that name exists already: a second run writes into the first one's file",
        Remediation(
            "Write a new file, or open or replace what is there on purpose",
            ("h5py.File(path, 'w')  # replaces the file", "f.require_dataset('x', shape, dtype)  # or: del f['x']"),
        ),
        (
            Signature(
                "name already exists",
                "ValueError: Unable to create dataset (name already exists)",
                "the name already exists in the list",
                r"Unable to (?:synchronously )?create (?:dataset|group|link|attribute|named type|object) \([^)\n]*name already exists\)",
                source="h5py 2.8 to 3.16",
            ),
            Signature(
                "errno = 17",
                "FileExistsError: [Errno 17] Unable to synchronously create file (unable to open file: name = 'out.h5', errno = 17, error message = 'File exists')",
                "errno = 170",
                r"unable to open file: name = '[^']*', errno = 17\b",
                source="h5py 2.8 to 3.16",
            ),
        ),
    ),
    Cause(
        "HDF245",
        "zarr-format-not-known",
        "The store is in another zarr format than the installed zarr reads.",
        "zarr 3 writes format 3 by default; zarr 2 reads format 2 only.",
        "the zarr store is in a format that the installed zarr does not read ({what})",
        Remediation(
            "Upgrade zarr where it is read, or write format 2",
            (
                "pip install -U 'zarr>=3'",
                "zarr.create_array(..., zarr_format=2)",
                'python -c "import zarr; print(zarr.__version__)"; ls -a STORE | head',
            ),
        ),
        (
            Signature(
                ("zarr_format'", "unsupported zarr format"),
                "zarr.errors.MetadataValidationError: Invalid value for 'zarr_format'. Expected '2'. Got '3'.",
                "'zarr_format' is 2",
                r"(?P<what>Invalid value for 'zarr_format'[^\n]*|unsupported zarr format:? ?\d*)",
                source="zarr 2.0 to 3.1",
            ),
        ),
    ),
)
